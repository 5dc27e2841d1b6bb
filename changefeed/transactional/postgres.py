"""Rows and positions in PostgreSQL, by asyncpg: one pool for all ranges of a process.

Transactions wait for each other only where they write the same rows. An owner that is frozen
in one holds what it has locked, and its successor may need that: the server ends such a session
after ``idle`` seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import Any

import asyncpg

from changefeed.feeds.feed import Change
from changefeed.stores.postgres.store import decode, encode
from changefeed.transactional.observer import TABLE, TransactionalObserver, check_given

_CONNECTIONS = 10
_LOCK = "select pg_advisory_xact_lock(hashtextextended($1, 0))"


def in_postgres(
    place: "str | asyncpg.Pool", *, name: str, table: str = TABLE, idle: float = 30.0
) -> Callable[
    [Callable[[Any, Sequence[Change[Any]]], Awaitable[None]]], partial[TransactionalObserver]
]:
    """Make an observer of ``async def function(connection, changes)``, which is called in a
    transaction of asyncpg's ``connection`` and must not end it.

    ``place`` is a connection URI, or a pool of the program's, which stays open. ``name``
    distinguishes what is in the same table: give each observer of each feed its own, and keep
    it. ``table`` may have a schema before it; it is created if it is absent. After ``idle``
    seconds without a statement the server ends a session within a transaction; in a pool of
    your own, set ``idle_in_transaction_session_timeout``.

    Raise ``UserError`` for a function that is not async, or what names no table.
    """

    def decorate(function: Any) -> partial[TransactionalObserver]:
        check_given(function, table, wants_async=True)
        shared = _Postgres(place, idle)
        return partial(TransactionalObserver, function, lambda: shared, name, table)

    return decorate


class _Postgres:
    """Connected while one of its users is open."""

    def __init__(self, place: "str | asyncpg.Pool", idle: float) -> None:
        self._place = place
        self._idle = idle
        self._users = 0
        self._connecting = asyncio.Lock()
        self._pool: Any = None

    async def open(self, table: str, create: str) -> None:
        async with self._connecting:
            self._pool = self._pool or await self._connect()
            self._users += 1
            try:
                async with self.transaction(alone=table) as t:
                    # A role that may not create it can go on where it is.
                    if await t.run("select 1 where to_regclass($1) is null", table):
                        await t.run(create)
            except BaseException:
                await self.close()
                raise

    async def _connect(self) -> Any:
        if not isinstance(self._place, str):
            return self._place
        settings = {"idle_in_transaction_session_timeout": f"{self._idle * 1000:.0f}"}
        return await asyncpg.create_pool(
            self._place, min_size=0, max_size=_CONNECTIONS, server_settings=settings
        )

    async def close(self) -> None:
        self._users -= 1
        if not self._users:
            pool, self._pool = self._pool, None
            if pool is not self._place:
                pool.terminate()

    @asynccontextmanager
    async def transaction(self, alone: str = "") -> AsyncIterator["_Transaction"]:
        async with self._pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                if alone:
                    await connection.execute(_LOCK, alone)
                yield _Transaction(connection)
            except asyncio.CancelledError:
                connection.terminate()  # else the client waits for a server that may hang
                raise
            except BaseException:
                await transaction.rollback()
                raise
            await transaction.commit()


class _Transaction:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def call(self, function: Callable[..., Any], changes: Sequence[Change]) -> None:
        done = function(self._connection, changes)
        if isawaitable(done):
            await done

    async def run(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        # A text has no NUL there.
        given = [encode(x) if isinstance(x, str) else x for x in values]
        found = await self._connection.fetch(statement, *given)
        return [[decode(x) if isinstance(x, str) else x for x in row] for row in found]
