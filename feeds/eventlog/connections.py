"""The connections of one reader to the records of an event log.

Each has a thread of its own, and which one reads a range depends on its number only. Two are
enough, because Python runs one thread at a time anyway: see docs/design/event-log.md.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiosqlite

from changefeed.feeds.eventlog.catalog import Catalog, check_records_of
from changefeed.feeds.eventlog.database import (
    connect,
    records_kept_open,
    refuse_other_records,
)
from changefeed.feeds.eventlog.schema import RECORDS
from changefeed.runtime.open_database import OpenDatabase

_CONNECTIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Those to the records of one broker."""

    file: OpenDatabase
    made: Sequence[aiosqlite.Connection]

    def of(self, partition: int) -> aiosqlite.Connection:
        return self.made[partition % len(self.made)]


class Brokers:
    """The connections to the records of each broker, made when first needed."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._connecting = asyncio.Lock()
        self._connections: dict[int, Connections] = {}

    def check(self) -> None:
        """Raise ``FeedRefused`` if records were deleted, replaced or overwritten meanwhile."""
        for connections in list(self._connections.values()):
            refuse_other_records(connections.file)

    async def connections(self, catalog: Catalog, broker: int) -> Connections:
        if broker not in self._connections:
            await self.connect(catalog, broker)
        return self._connections[broker]

    async def fetch(
        self,
        catalog: Catalog,
        broker: int,
        statement: str,
        values: Any = (),
        *,
        partition: int = 0,
    ) -> Sequence[Any]:
        """Return the rows that a statement selects.

        The number of a partition says which connection is used.
        """
        connection = (await self.connections(catalog, broker)).of(partition)
        return list(await connection.execute_fetchall(statement, values))

    async def connect(self, catalog: Catalog, broker: int) -> None:
        path = catalog.folder(broker) / RECORDS
        async with self._connecting:
            if broker in self._connections:
                return
            made = [
                await self._stack.enter_async_context(connect(path, "ro"))
                for _ in range(_CONNECTIONS)
            ]
            await asyncio.to_thread(check_records_of, catalog, broker)
            file = await asyncio.to_thread(records_kept_open, path)
            self._connections[broker] = Connections(file=file, made=made)
