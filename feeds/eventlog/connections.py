"""The connections of one reader to the records of an event log.

Each has a thread of its own, and which one reads a range depends on its number only. Two are
enough, because Python runs one thread at a time anyway: see docs/design/event-log.md.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiosqlite

from changefeed.feeds.eventlog.catalog import (
    Catalog,
    Partition,
    RecordsFormat,
    format_of_records,
)
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
    """Those to the records of one broker, and the format these have."""

    format: RecordsFormat
    file: OpenDatabase
    made: Sequence[aiosqlite.Connection]

    def of(self, partition: Partition) -> aiosqlite.Connection:
        return self.made[partition.number % len(self.made)]


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

    async def connect(self, catalog: Catalog, broker: int) -> None:
        path = catalog.folder(broker) / RECORDS
        async with self._connecting:
            if broker in self._connections:
                return
            made = [
                await self._stack.enter_async_context(connect(path, "ro"))
                for _ in range(_CONNECTIONS)
            ]
            found = await asyncio.to_thread(format_of_records, catalog, broker)
            file = await asyncio.to_thread(records_kept_open, path)
            self._connections[broker] = Connections(format=found, file=file, made=made)
