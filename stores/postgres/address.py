"""Addresses of leases in PostgreSQL: a connection URI, and which fleet in which schema.

``postgresql://USER@HOST:PORT/DATABASE?fleet=NAME&schema=NAME``. Everything else is what
PostgreSQL's own clients take: several hosts (``HOST1,HOST2``), ``sslmode=verify-full``, and
``PGHOST``, ``PGUSER``, ``PGPASSWORD`` or ``~/.pgpass`` for what the address leaves out.
"""

import os
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
DEFAULT_SCHEMA = "changefeed"
_PORT = re.compile(r":([0-9]+)(?=,|$)")
_LAST_PORT = 65_535
_OURS = {"fleet", "schema"}
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Where leases are: ``dsn`` for the client, and what is ours. Printed without secrets."""

    dsn: str
    fleet: str = DEFAULT_FLEET
    schema: str = DEFAULT_SCHEMA

    @property
    def files(self) -> list[str]:
        """Files of certificates and keys that the address or the environment names."""
        named = read_options(urlsplit(self.dsn).query)
        given = (named.get(x) or os.environ.get(f"PG{x.upper()}") for x in _FILES)
        return [x for x in given if x]

    def __str__(self) -> str:
        parts = urlsplit(self.dsn)
        place = parts.netloc.rpartition("@")[2] or "the default host"
        return f"postgresql://{place}{unquote(parts.path)} ({self.schema}, {self.fleet})"


def read_address(place: str) -> PostgresAddress:
    """Read what follows ``postgresql:``. Raise ``StoreRefused`` with advice."""
    parts = urlsplit(f"postgresql:{place}")
    if not place.startswith("//"):
        raise StoreRefused(
            "leases in PostgreSQL are at postgresql://USER@HOST/DATABASE?fleet=NAME"
        )
    for port in _PORT.findall(parts.netloc.rpartition("@")[2]):
        if int(port) > _LAST_PORT:
            raise StoreRefused(f"{port} in the address of leases is not a port")
    options = with_absolute_files(read_options(parts.query), _FILES)
    ours = {name: options.pop(name) for name in _OURS & options.keys()}
    for name in ("fleet", "schema"):
        if not ours.get(name, "?"):
            raise StoreRefused(f"{name}= in the address of leases must not be empty")
    return PostgresAddress(
        dsn=urlunsplit(parts._replace(query=write_options(options), fragment="")),
        fleet=ours.get("fleet", DEFAULT_FLEET),
        schema=ours.get("schema", DEFAULT_SCHEMA),
    )
