"""Reading an event log.

A page is one statement, on one of a few connections that all ranges share: each has a
thread of its own, and which one reads a range depends on its number only. Decoding is
done on the event loop, about half a millisecond for a thousand changes; parts of a partition
share what was decoded (``parts``). Two connections
are enough, because Python runs one thread at a time anyway: see docs/design/event-log.md.

The beginning of a range may lie in segments (``sealed``): pages of these are read and made
in a thread, and only where a change is in no block is a segment looked for.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from changefeed.feeds.errors import FeedRefused, RangeDamaged, RangeRefused, RangeUnknown
from changefeed.feeds.eventlog import parts as parts_of
from changefeed.feeds.eventlog.block_format import BlockDamaged, changes_of, joined
from changefeed.feeds.eventlog.catalog import (
    Catalog,
    Partition,
    read_catalog,
)
from changefeed.feeds.eventlog.connections import Brokers
from changefeed.feeds.eventlog.cursors import Cursors
from changefeed.feeds.eventlog.damage import damaged
from changefeed.feeds.eventlog.database import (
    advised,
)
from changefeed.feeds.eventlog.ends import Ends
from changefeed.feeds.eventlog.ids import (
    position,
    sequence_in,
)
from changefeed.feeds.eventlog.schema import RECORDS
from changefeed.feeds.eventlog.sealed import (
    segment_of,
    sequence_in_segment,
)
from changefeed.feeds.eventlog.segment_rows import (
    Segment,
    segment_query,
    segment_since_query,
)
from changefeed.feeds.eventlog.stored_blocks import (
    BLOCK,
    END,
    SINCE,
    End,
    StoredBlock,
    end_of,
    sequence_since,
    whole_blocks,
)
from changefeed.feeds.feed import (
    Change,
    FeedRange,
    Page,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.feeds.timestamps import instant_us

_PAGE_BYTES = 8 * 1024 * 1024
"""A page takes no more blocks once it has so many bytes, whatever its limit."""

_BLOCKS = f"""
WITH start AS (
    SELECT first AS start_first, stored AS start_stored FROM blocks
    WHERE partition = :partition AND first <= :next ORDER BY first DESC LIMIT 1
)
SELECT {BLOCK} FROM start JOIN blocks
    ON partition = :partition
    AND first BETWEEN start_first AND :until
    AND last >= :next
    AND stored <= start_stored + :bytes
ORDER BY first
"""  # noqa: S608 - names of our own columns
_END = f"{END} WHERE partition = ?"


class EventLog(parts_of.FeedOfPartitions):
    """A feed over the directory of an event log. Make it with ``open``.

    ``ranges`` names every partition there ever was: ended ones can still be read.
    """

    def __init__(self, catalog: Catalog, brokers: Brokers) -> None:
        self._catalog = catalog
        self._brokers = brokers
        self._ends = Ends(brokers)
        self._cursors = Cursors()
        self._segments: dict[int, Segment] = {}  # of each partition, the last one read
        self._parts = parts_of.PartReader(catalog.identity, self._read_whole)

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path) -> "AsyncIterator[EventLog]":
        """Read a log until the block is left; any number of processes may.

        Raise ``FeedRefused``, with advice, for what is no log or cannot be read.
        """
        catalog = await asyncio.to_thread(read_catalog, Path(path))
        async with AsyncExitStack() as stack:
            brokers = Brokers(stack)
            for broker in catalog.folders:
                await brokers.connect(catalog, broker)
            log = cls(catalog, brokers)
            stack.callback(log._cursors.close)
            yield log

    @property
    def identity(self) -> str:
        return self._catalog.identity

    async def ranges(self) -> Sequence[FeedRange]:
        await self._refresh()
        return [x.as_range() for x in self._catalog.partitions]

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        partition = await self._partition(found.id)
        if at == "beginning":
            return self._position(0)
        if at == "now":
            return self._position((await self._end(partition)).last)
        time_us = instant_us(at)
        rows = await self._fetch(partition, SINCE, (partition.number, time_us))
        # Asked later, so what was sealed meanwhile is found here.
        query = segment_since_query(partition.number, time_us)
        segment = await self._segment(partition, query)
        if segment is not None:
            last = await asyncio.to_thread(sequence_in_segment, self._catalog, segment, time_us)
            return self._position(last)
        if not rows:
            return self._position((await self._end(partition)).last)
        before = sequence_since(rows[0], self._catalog, partition, time_us)
        return self._position(before)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        assert limit > 0, "a page holds at least one change"
        partition = await self._partition(found.id)
        part = parts_of.Part.of(partition, found.id)
        if part is not None:
            return await self._parts.read(part, after, limit)
        return await self._read_whole(partition, after, limit)

    async def _read_whole(self, partition: Partition, after: Position, limit: int) -> Page:
        last = sequence_in(partition.id, after, self.identity)
        page = await self._piece(partition, after, last, limit)
        if 0 < len(page.changes) < limit and self._is_sealed(partition, last + 1):
            return await self._filled(partition, page, limit)
        return page

    async def _piece(
        self, partition: Partition, after: Position, last: int, limit: int
    ) -> Page:
        """Read on, but not across a border between segments and blocks."""
        if self._is_sealed(partition, last + 1):
            return await self._sealed_page(self._segments[partition.number], last, limit)
        rows = await self._fetch(partition, _BLOCKS, _page_of(partition, last, limit))
        if not rows:
            return await self._not_in_blocks(partition, after, last, limit)
        changes = self._changes(partition, last, rows)[:limit]
        assert changes[0].sequence == last + 1, (
            f"range {partition.id!r}: {changes[0].sequence} was read behind {last}"
        )
        return Page(changes=changes, position=self._position(changes[-1].sequence))

    async def _filled(self, partition: Partition, page: Page, limit: int) -> Page:
        """Add what lies behind a border: a page that is not full looks like the end."""
        changes = list(page.changes)
        begin = changes[0].sequence
        while self._is_sealed(partition, begin) and len(changes) < limit:
            begin = changes[-1].sequence + 1
            after = self._position(begin - 1)
            try:
                more = await self._piece(partition, after, begin - 1, limit - len(changes))
            except (RangeDamaged, RangeEnded):
                break  # it is raised again at the next page
            assert not more.changes or more.changes[0].sequence == begin, (
                f"range {partition.id!r}: {more.changes[0].sequence} at the border of {begin}"
            )
            changes += more.changes
            assert len(changes) <= limit, f"{len(changes)} changes in a page of {limit}"
            if not more.changes or sum(len(x.body) for x in changes) > _PAGE_BYTES:
                break
        return Page(changes=changes, position=self._position(changes[-1].sequence))

    def _is_sealed(self, partition: Partition, sequence: int) -> bool:
        """Whether a change is in the segment of its range that was read last."""
        segment = self._segments.get(partition.number)
        return segment is not None and segment.file.first <= sequence <= segment.file.last

    def position_after(self, change: Change) -> Position:
        return self._position(change.sequence)

    async def news(self, at: Mapping[FeedRange, Position]) -> Collection[RangeId]:
        """Return those that ``Feed.news`` says, by one statement for each folder that was
        written to since it was asked last.
        """
        return await self._ends.news(self._catalog, at)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return await self._ends.lags(self._catalog, at)

    async def _not_in_blocks(
        self, partition: Partition, after: Position, last: int, limit: int
    ) -> Page:
        """Answer where no block has a change after a position: yet, or ever, or any more."""
        end = await self._end(partition)  # asked later, so it may lie further on by now
        _refuse_beyond(partition.id, after, last, end)
        one = _page_of(partition, last, 1)
        if end.last > last and not await self._fetch(partition, _BLOCKS, one):
            query = segment_query(partition.number, last + 1)
            segment = await self._segment(partition, query, last + 1)
            if segment is None:
                raise damaged(self._catalog, partition.id, last + 1, end.last)
            self._segments[partition.number] = segment
            return await self._sealed_page(segment, last, limit)
        if end.closed and end.last == last:
            await self._refresh()
            partition = self._catalog.partition(partition.id)
            if partition.closed:
                raise RangeEnded(partition.id, self._catalog.children(partition.id))
        return Page(changes=(), position=after)

    async def _sealed_page(self, segment: Segment, last: int, limit: int) -> Page:
        changes = await asyncio.to_thread(
            self._cursors.page, self._catalog, segment, last + 1, limit
        )
        return Page(changes=changes, position=self._position(changes[-1].sequence))

    async def _segment(
        self, partition: Partition, query: tuple[str, Sequence[Any]], wanted: int | None = None
    ) -> Segment | None:
        connections = await self._brokers.connections(self._catalog, partition.broker)
        connection = connections.of(partition.number)
        with advised(self._catalog.folder(partition.broker) / RECORDS, partition.id):
            rows = list(await connection.execute_fetchall(*query))
        return segment_of(self._catalog, partition, rows, wanted)

    async def _partition(self, range_id: RangeId) -> Partition:
        try:
            return self._catalog.holding(range_id)
        except RangeUnknown:
            await self._refresh()  # it may have been opened since
        return self._catalog.holding(range_id)

    async def _refresh(self) -> None:
        catalog = await asyncio.to_thread(read_catalog, self._catalog.home)
        if catalog.identity != self._catalog.identity:
            raise FeedRefused(
                f"the event log at {catalog.home} was deleted and recreated while it was "
                f"open: start again, after resetting the leases of this feed"
            )
        await asyncio.to_thread(self._brokers.check)
        self._catalog = catalog

    def _changes(
        self, partition: Partition, last: int, rows: Sequence[Any]
    ) -> Sequence[Change]:
        """Make the changes behind a sequence, up to a block that is damaged.

        Raise ``RangeDamaged`` if that is the first.
        """
        blocks: list[StoredBlock] = []
        try:
            for block in whole_blocks(rows, self._catalog, partition, last + 1):
                blocks.append(block)  # noqa: PERF402 - those before a damaged one count
        except RangeDamaged:
            if not blocks:
                raise
        assert blocks, "the first block is whole, or its damage was raised"
        first, end = blocks[0].first, blocks[-1].last
        layout = joined(x.columns for x in blocks)
        try:
            changes = changes_of(partition.id, first, end - first + 1, layout)
        except BlockDamaged as error:
            raise damaged(self._catalog, partition.id, last + 1, end) from error
        return changes[last + 1 - first :]  # a page may begin within a block

    async def _end(self, partition: Partition) -> End:
        rows = await self._fetch(partition, _END, (partition.number,))
        if not rows:
            raise RangeUnknown(partition.id)
        return end_of(rows[0], self._catalog)

    async def _fetch(self, partition: Partition, statement: str, values: Any) -> Sequence[Any]:
        broker, number = partition.broker, partition.number
        with advised(self._catalog.folder(broker) / RECORDS, partition.id):
            return await self._brokers.fetch(
                self._catalog, broker, statement, values, partition=number
            )

    def _position(self, sequence: int) -> Position:
        return position(self._catalog.identity, sequence)


def _page_of(partition: Partition, last: int, limit: int) -> dict[str, int]:
    """Return what a statement for the blocks of a page needs."""
    return {
        "partition": partition.number,
        "next": last + 1,
        "until": last + limit,
        "bytes": _PAGE_BYTES,
    }


def _refuse_beyond(range_id: RangeId, after: Position, last: int, end: End) -> None:
    if last > end.last:
        raise RangeRefused(
            range_id,
            f"the position {after!r} lies beyond the end of range {range_id!r}, which has "
            f"{end.last} changes: the log was restored from an older copy, or the position "
            f"is of another range. Reset the lease of this range",
        )
