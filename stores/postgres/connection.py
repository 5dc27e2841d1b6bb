"""A few connections to one PostgreSQL server, which must be the primary.

A call that is cancelled ends its connection at once. The client would otherwise wait for
the server to confirm, and a server that hangs would hold the host longer than its own
limit. A connection that was lost is replaced at the next call; a server that has become a
standby is left, and the addresses are tried again for the primary.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from changefeed.runtime.errors import StoreRefused
from changefeed.runtime.secret import Secret
from changefeed.runtime.tls import unreadable_file
from changefeed.stores.postgres.address import PostgresAddress
from changefeed.stores.postgres.errors import is_read_only, translate_errors

Row = Mapping[str, Any]

_CONNECTIONS = 4
_CONNECT_TIMEOUT = 10.0


class Database:
    """Runs single statements, each in a transaction of its own."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", where: str) -> None:
        self._pool = pool
        self.where = where

    async def fetch(self, statement: str, *parameters: object) -> Sequence[Row]:
        with translate_errors(self.where):
            async with self._pool.acquire() as connection:
                try:
                    rows: Sequence[Row] = await connection.fetch(statement, *parameters)
                except BaseException as error:
                    # The host's own limits end a call by cancelling it.
                    if isinstance(error, asyncio.CancelledError) or is_read_only(error):
                        connection.terminate()
                    raise
        return rows

    async def one(self, statement: str, *parameters: object) -> Row | None:
        rows = await self.fetch(statement, *parameters)
        assert len(rows) <= 1, f"{len(rows)} rows where one is meant: {statement}"
        return rows[0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> "AsyncIterator[Any]":
        """Yield a connection in a transaction, for what takes several statements."""
        with translate_errors(self.where):
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection


@asynccontextmanager
async def connect(
    address: PostgresAddress, password: Secret | None = None
) -> AsyncIterator[Database]:
    """Open the database as long as the block lasts; it has answered by then."""
    unreadable = unreadable_file(address.files)
    if unreadable is not None:  # the client would take it for a server that is away
        raise StoreRefused(f"{address}: {unreadable}")
    options: dict[str, Any] = {
        "target_session_attrs": "read-write",
        "timeout": _CONNECT_TIMEOUT,
        "server_settings": {"application_name": "changefeed-host"},
        # Asked for each connection, as are the files of certificates in the address.
        **({"password": password.current} if password else {}),
    }
    try:
        with translate_errors(str(address)):
            # The first connection, which also tells a wrong address from a later failure.
            if await _is_behind_pooler(address.dsn, options):
                options["statement_cache_size"] = 0
            pool = await asyncpg.create_pool(
                address.dsn,
                min_size=0,  # it would complain in the log while the server is away
                max_size=_CONNECTIONS,
                reset=_as_it_is,
                **options,
            )
    except ValueError as error:  # what the client reads in an address when it connects
        raise StoreRefused(f"{address}: {error}") from error
    try:
        yield Database(pool, str(address))
    finally:
        pool.terminate()


async def _is_behind_pooler(dsn: str, options: Mapping[str, Any]) -> bool:
    """Whether a pooler such as PgBouncer passes statements on to servers of its choice. A
    statement that was prepared on one is not there on the next, or is another client's.
    """
    connection = await asyncpg.connect(dsn, statement_cache_size=0, **options)
    try:
        asked, told = "SELECT pg_backend_pid()", connection.get_server_pid()
        server = await connection.fetchval(asked, timeout=_CONNECT_TIMEOUT)
        await connection.close(timeout=_CONNECT_TIMEOUT)
    finally:
        connection.terminate()
    return bool(server != told)  # a pooler gives out numbers of its own


async def _as_it_is(_: object) -> None:
    """Leave a connection as it is between calls: none of them changes its session."""
