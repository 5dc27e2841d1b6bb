"""The connections of one reader to the records of an event log.

Each has a thread of its own, and which one reads a range depends on its number only. Two are
enough, because Python runs one thread at a time anyway: see docs/design/event-log.md.

A log without checksums may get them while it is open. So as long as it has none, its format is
asked again after each read: if it is another, what was read counts for nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import aiosqlite

from changefeed.feeds.eventlog.catalog import (
    Catalog,
    RecordsFormat,
    format_of_records,
)
from changefeed.feeds.eventlog.database import (
    connect,
    records_kept_open,
    refuse_other_records,
)
from changefeed.feeds.eventlog.schema import RECORDS
from changefeed.feeds.eventlog.sealed import FORMAT
from changefeed.runtime.open_database import OpenDatabase

_CONNECTIONS = 2


class Fetched(NamedTuple):
    """Rows, and the format that the records had when they were read."""

    rows: list[Any]
    records: RecordsFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Those to the records of one broker, and the format these had when it was asked."""

    format: RecordsFormat
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
        statement: Mapping[int, str],
        values: Any = (),
        *,
        partition: int = 0,
    ) -> Fetched:
        """Return what a statement selects: the one for the format that the records have.

        The number of a partition says which connection is used.
        """
        while True:
            known = await self.connections(catalog, broker)
            connection, version = known.of(partition), known.format.format
            rows = list(await connection.execute_fetchall(statement[version], values))
            if known.format.has_checksums or version in await _formats(connection):
                return Fetched(rows, known.format)
            found = await asyncio.to_thread(format_of_records, catalog, broker)
            self._connections[broker] = replace(known, format=found)

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


async def _formats(connection: aiosqlite.Connection) -> Sequence[int]:
    return [version for (version,) in await connection.execute_fetchall(FORMAT)]
