"""Rows and positions in a SQLite file: each range has a connection, in a thread of its own.

A transaction begins as the only writer of the file. So an owner that is frozen in one holds up
all others, until it goes on or is killed.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from changefeed.feeds.feed import Change
from changefeed.observers.one_thread import OneThread
from changefeed.runtime.wal import change_to_wal
from changefeed.transactional.observer import TABLE, TransactionalObserver, check_given

_BUSY_TIMEOUT = 5.0
_change_to_wal = partial(change_to_wal, within=_BUSY_TIMEOUT)


def in_sqlite(
    path: str | Path, *, name: str, table: str = TABLE
) -> Callable[
    [Callable[[sqlite3.Connection, Sequence[Change[Any]]], None]],
    partial[TransactionalObserver],
]:
    """Make an observer of a plain ``function(connection, changes)``, which is called in a
    transaction of ``connection``, in a thread, and must not end the transaction.

    The file is made if it is absent, and put in WAL mode. ``name`` distinguishes what is in the
    same table: give each observer of each feed its own, and keep it.

    Raise ``UserError`` for an async function, or what names no table.
    """

    def decorate(function: Any) -> partial[TransactionalObserver]:
        check_given(function, table, wants_async=False)
        return partial(TransactionalObserver, function, partial(_Sqlite, path), name, table)

    return decorate


class _Sqlite:
    """A connection, and its transaction."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._thread: Any = None
        self._connection: Any = None

    async def open(self, _table: str, create: str) -> None:
        self._thread = OneThread(f"transactions in {self._path}")
        try:
            connect = partial(sqlite3.connect, timeout=_BUSY_TIMEOUT, isolation_level=None)
            self._connection = await self._thread.run(connect, self._path)
            await self._thread.run(_change_to_wal, self._connection)
            await self.run(create)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        try:
            if self._connection is not None:
                await self._thread.run(self._connection.close)
        finally:
            self._thread.stop()

    @asynccontextmanager
    async def transaction(self, alone: str = "") -> AsyncIterator["_Sqlite"]:
        del alone  # each is
        try:
            await self.run("begin immediate")
            yield self
            await self.run("commit")
        finally:
            await self._thread.run(self._undo)

    async def call(self, function: Callable[..., Any], changes: Sequence[Change]) -> None:
        await self._thread.run(function, self._connection, changes)

    async def run(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        named = {str(n): x for n, x in enumerate(values, start=1)}
        found: Sequence[Sequence[Any]] = await self._thread.run(self._run, statement, named)
        return found

    def _run(self, statement: str, named: dict[str, object]) -> list[tuple[Any, ...]]:
        return [tuple(x) for x in self._connection.execute(statement, named)]

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("rollback")
