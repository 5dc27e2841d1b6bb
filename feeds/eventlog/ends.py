"""Where the ranges of an event log end, for all of them at once.

They are kept in memory, and read again, in one statement for each folder, only after SQLite
has seen a write of another connection (``PRAGMA data_version``). So to ask for the news of
thousands of ranges of a log that nothing is appended to costs next to nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from changefeed.feeds.errors import RangeRefused, RangeUnknown
from changefeed.feeds.eventlog.catalog import Catalog
from changefeed.feeds.eventlog.connections import Brokers
from changefeed.feeds.eventlog.database import advised
from changefeed.feeds.eventlog.ids import position, sequence_in
from changefeed.feeds.eventlog.schema import RECORDS
from changefeed.feeds.eventlog.stored_blocks import END, End, sound_end
from changefeed.feeds.feed import FeedRange, Position, RangeId

_FIRST = 0  # a version of the data means something to one connection only


@dataclass(slots=True, kw_only=True)
class _Known:
    """The ends in one folder when its records had this version. ``None`` is a damaged one."""

    version: int
    rows: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    ends: Mapping[int, End | None] = field(default_factory=dict)


class Ends:
    """Those that one reader knows."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._known: dict[int, _Known] = {}

    async def news(
        self, catalog: Catalog, positions: Mapping[FeedRange, Position]
    ) -> Collection[RangeId]:
        """Return the ranges that do not end for now at these positions.

        What is damaged, closed or not known is among them: its reader finds out.
        """
        ends = await self._ends(catalog, [x.id for x in positions])
        mark = catalog.identity
        return [
            found.id
            for found, after in positions.items()
            if (end := ends.get(found.id)) is None
            or end.closed
            or after != position(mark, end.last)
        ]

    async def lags(
        self, catalog: Catalog, positions: Mapping[FeedRange, Position]
    ) -> Mapping[RangeId, int]:
        """Return how many changes lie behind each position, where that can be said."""
        lags: dict[RangeId, int] = {}
        after = {x.id: y for x, y in positions.items()}
        for name, end in (await self._ends(catalog, after)).items():
            with suppress(RangeRefused):
                lag = end.last - sequence_in(name, after[name], catalog.identity)
                if lag >= 0:
                    lags[name] = lag
        return lags

    async def _ends(
        self, catalog: Catalog, wanted: Collection[RangeId]
    ) -> Mapping[RangeId, End]:
        found: dict[RangeId, End] = {}
        folders: dict[int, Mapping[int, End | None]] = {}
        for name in wanted:
            try:
                partition = catalog.holding(name)
            except RangeUnknown:
                continue
            if partition.broker not in folders:
                folders[partition.broker] = await self._in_folder(catalog, partition.broker)
            end = folders[partition.broker].get(partition.number)
            if end is not None:
                found[name] = end
        return found

    async def _in_folder(self, catalog: Catalog, broker: int) -> Mapping[int, End | None]:
        connection = (await self._brokers.connections(catalog, broker)).of(_FIRST)
        with advised(catalog.folder(broker) / RECORDS):
            # Before the rows: if they are of a later version, they are read once more.
            ((version,),) = await connection.execute_fetchall("PRAGMA data_version")
            known = self._known.get(broker)
            if known is not None and known.version == version:
                return known.ends
            fetched = await self._brokers.fetch(catalog, broker, END, partition=_FIRST)
        rows = {x[0]: tuple(x) for x in fetched}
        known = _Known(version=version) if known is None else known
        ends = {
            number: known.ends[number] if known.rows.get(number) == row else sound_end(row)
            for number, row in rows.items()
        }
        self._known[broker] = _Known(version=version, rows=rows, ends=ends)
        return ends
