"""Looking at leases in PostgreSQL before hosts run on it, or when they cannot."""

from collections.abc import AsyncIterator, Iterator

from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.stores.postgres.connection import Row
from changefeed.stores.postgres.store import PostgresStore

_OLDEST = 120000
_SERVER = """
    select current_setting('server_version') as version,
        current_setting('server_version_num')::int as number,
        current_setting('synchronous_commit') as synchronous_commit,
        current_setting('fsync') as fsync,
        current_setting('full_page_writes') as full_page_writes"""


async def check(store: PostgresStore) -> AsyncIterator[Diagnostic]:
    """Yield what is found in the settings of the server."""
    server = await store.database.one(_SERVER)
    assert server is not None, "a select without a table has one row"
    for found in server_diagnostics(server):
        yield found


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
