"""Addresses of leases in Redis: ``redis://HOST:PORT/DB?fleet=NAME``, ``rediss://`` with TLS.

``cluster=true`` is for a Redis Cluster: all keys of a fleet are in one slot of it. Other
options are those of the client (``ssl_ca_certs=FILE``, ``username=NAME``).
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit, urlunsplit

from changefeed.runtime.address_options import (
    read_options,
    with_absolute_files,
    write_options,
)
from changefeed.runtime.errors import StoreRefused

DEFAULT_FLEET = "changefeed"
_DATABASE = re.compile("/?[0-9]{0,9}")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_BRACES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Where leases are: ``url`` for the client, and what is ours. Printed without secrets."""

    url: str
    fleet: str = DEFAULT_FLEET
    cluster: bool = False

    @property
    def files(self) -> list[str]:
        """Files of certificates and keys that the address names."""
        named = read_options(urlsplit(self.url).query)
        return [named[x] for x in _FILES if named.get(x)]

    def without_user(self) -> tuple[str, str]:
        """Return ``url`` without the user that it names and a password, and that user."""
        parts = urlsplit(self.url)
        options = read_options(parts.query)
        options.pop("password", None)
        user = unquote(parts.username or "") or options.pop("username", "")
        bare = parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query=write_options(options)
        )
        return urlunsplit(bare), user

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{place}{parts.path} ({self.fleet})"

    def key(self, kind: str) -> str:
        """Return the key of one kind of record; the braces keep a fleet in one slot."""
        key = f"changefeed:{{{self.fleet.translate(_BRACES)}}}:{kind}"
        assert (key.count("{"), key.count("}")) == (1, 1), f"{key} may be in another slot"
        return key


def read_address(scheme: str, place: str) -> RedisAddress:
    """Read what follows ``redis:`` or ``rediss:``. Raise ``StoreRefused`` with advice."""
    parts = urlsplit(f"{scheme}:{place}")
    if not place.startswith("//") or not parts.hostname:
        raise StoreRefused(f"leases in Redis are at {scheme}://HOST:PORT/DB?fleet=NAME")
    if not _DATABASE.fullmatch(parts.path):
        raise StoreRefused(
            f"{parts.path.lstrip('/')!r} in the address of leases in Redis is not a database "
            f"number: {scheme}://HOST:PORT/DB?fleet=NAME"
        )
    options = with_absolute_files(read_options(parts.query), _FILES)
    fleet = options.pop("fleet", DEFAULT_FLEET)
    cluster = options.pop("cluster", "false")
    if not fleet:
        raise StoreRefused("fleet= in the address of leases must not be empty")
    if cluster not in ("true", "false"):
        raise StoreRefused(f"cluster={cluster} in the address should be true or false")
    return RedisAddress(
        url=urlunsplit(parts._replace(query=write_options(options), fragment="")),
        fleet=fleet,
        cluster=cluster == "true",
    )
