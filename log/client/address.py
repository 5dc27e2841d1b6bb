"""Addresses of collections: ``brokers://HOST:PORT,HOST:PORT/COLLECTION``. Values only.

Some brokers of the cluster are enough; they name the others. ``brokers+tls:`` is the same
over TLS. A token is never part of an address, because addresses are logged.
"""

import re
from dataclasses import dataclass

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.names import check_name

PLAIN, TLS = "brokers", "brokers+tls"
FORM = "//HOST:PORT,HOST:PORT/COLLECTION, as in brokers://127.0.0.1:7070/orders"
DEFAULT_PORT = 7070

_BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersAddress:
    """Where a collection is. ``urls`` are those of brokers, without a slash at the end."""

    urls: tuple[str, ...]
    collection: str


def parse_address(scheme: str, place: str) -> BrokersAddress:
    """Raise ``FeedRefused``, with advice, for what follows no ``brokers:`` address."""
    address = f"{scheme}:{place}"
    if not place.startswith("//"):
        raise _refused(address, "two slashes come first")
    hosts, _, collection = place[2:].partition("/")
    check_name(collection, "collection")
    return BrokersAddress(urls=broker_urls(scheme, hosts, address), collection=collection)


def broker_urls(scheme: str, hosts: str, address: str = "") -> tuple[str, ...]:
    """Return the URLs of ``HOST:PORT,HOST:PORT``."""
    web = "https" if scheme == TLS else "http"
    found = []
    for host in hosts.split(","):
        parsed = _BROKER.fullmatch(host.strip())
        port = int((parsed and parsed[2]) or DEFAULT_PORT)
        if parsed is None or not 0 < port <= _MAX_PORT:
            raise _refused(address or hosts, f"{host!r} is not the host and port of a broker")
        found.append(f"{web}://{parsed[1]}:{port}")
    return tuple(dict.fromkeys(found))


def _refused(address: str, reason: str) -> FeedRefused:
    return FeedRefused(f"{address!r} cannot be used: {reason}. Write it as {PLAIN}:{FORM}")
