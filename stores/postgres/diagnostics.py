"""Looking at leases in PostgreSQL before hosts run on it, or when they cannot."""

from collections.abc import AsyncIterator, Iterator

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.stores.password import password_of
from changefeed.stores.postgres.address import read_address
from changefeed.stores.postgres.connection import Row, connect
from changefeed.stores.postgres.schema import VERSION, require_schema
from changefeed.stores.postgres.store import PostgresStore
from changefeed.stores.rights import check_rights

_OLDEST = 120000
_SERVER = """
    select current_setting('server_version') as version,
        current_setting('server_version_num')::int as number,
        current_setting('synchronous_commit') as synchronous_commit,
        current_setting('fsync') as fsync,
        current_setting('full_page_writes') as full_page_writes,
        pg_is_in_recovery() as standby,
        current_setting('max_connections')::int as connections"""


async def check(at: Address, options: OpenOptions) -> AsyncIterator[Diagnostic]:
    """Yield what is found. Raise as containers do where no more can be seen.

    It writes one record of its own and deletes it again, to see whether it may.
    """
    address = read_address(at.place)
    async with connect(address, password_of(options)) as database:
        server = await database.one(_SERVER)
        assert server is not None, "a select without a table has one row"
        for found in server_diagnostics(server):
            yield found
        await require_schema(database, address.schema)
        yield fine("tables", f"version {VERSION} in schema {address.schema!r}")
        yield await check_rights(PostgresStore(database, address.schema, address.fleet))


def server_diagnostics(server: Row) -> Iterator[Diagnostic]:
    """Judge the settings of a server."""
    if server["number"] < _OLDEST:
        yield warning(
            "server", f"PostgreSQL {server['version']}", "upgrade it: it gets no fixes any more"
        )
    else:
        yield fine("server", f"PostgreSQL {server['version']}, the primary")
    if server["fsync"] == "off" or server["full_page_writes"] == "off":
        yield problem(
            "durability",
            "fsync or full_page_writes is off: a power cut may destroy the database",
            "switch both on (postgresql.conf)",
        )
    elif server["synchronous_commit"] == "off":
        yield warning(
            "durability",
            "synchronous_commit is off: a crash of the server loses its last writes, and "
            "checkpoints go back by about half a second",
            "leave it, if that repetition is fine; or ALTER ROLE … SET synchronous_commit = on",
        )
    else:
        yield fine("durability", f"synchronous_commit is {server['synchronous_commit']}")
