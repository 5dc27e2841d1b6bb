"""Reading a collection: a feed, whose ranges are the partitions. Through brokers, or elsewhere.

An answer has whole sections of flushes, which are more than a page of changes. What is left of
an answer is kept for the next page, by the sequence before it, for all ranges together so many
bytes at the most.

A read that finds nothing waits at its broker for a first change, so changes come at once and
cost no requests meanwhile. Each such read holds a connection: only some at a time do, and the
others return empty.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import (
    Change,
    Child,
    Feed,
    FeedRange,
    Page,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.feeds.parts import range_in_name, refuse_other_wholes
from changefeed.feeds.timestamps import start_us
from changefeed.log.catalog.ranges import Partition
from changefeed.log.errors import Damaged, position_beyond
from changefeed.log.format.block_format import BlockChanges, joined
from changefeed.log.ids import position, sequence_in
from changefeed.log.protocol.messages import Block
from changefeed.log.protocol.routes import Routes
from changefeed.log.reading import parts as parts_of
from changefeed.log.reading.ends import NewsReader
from changefeed.log.reading.source import Source
from changefeed.log.rows.object_cache import Cache
from changefeed.log.rows.partition_reader import EARLIEST

_PAGE_BYTES = 1024 * 1024
_LEFTOVER_BYTES = 64 * 1024 * 1024
_WAITING = 64


class CollectionFeed(Feed):
    """A feed over a collection.

    ``ranges`` names every partition that there ever was and that a record is left of, and
    those that are open. A read that finds nothing waits for so many seconds, where the source
    can.
    """

    def __init__(self, source: Source, routes: Routes, *, wait: float) -> None:
        self._source = source
        self._routes = routes
        self._wait = wait
        self._waiting = asyncio.Semaphore(_WAITING)
        self._leftovers = Cache[tuple[RangeId, int], BlockChanges](
            _LEFTOVER_BYTES, lambda x: x.size
        )
        self._reached: dict[RangeId, int] = {}
        self._ends = NewsReader(source, waits=wait > 0)
        self._parts = parts_of.PartReader(self.identity, self._read_whole_at_once)

    @property
    def identity(self) -> str:
        return self._routes.identity

    async def ranges(self) -> Sequence[FeedRange]:
        await self._refresh()
        return self._routes.ranges

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        time_us = start_us(at)
        partition = await self._partition(found.id)
        if at == "now":
            return self._position((await self._source.end(partition.id)).last)
        time_us = EARLIEST if time_us is None else time_us
        return self._position(await self._source.sequence_before(partition.id, time_us))

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        assert limit > 0, "a page holds at least one change"
        partition = await self._partition(found.id)
        part = parts_of.Part.of(partition, found.id)
        if part is not None:
            return await self._parts.read(part, after, limit)
        return await self._page(partition, after, limit, wait=self._wait)

    async def _read_whole_at_once(
        self, partition: Partition, after: Position, limit: int
    ) -> Page:
        """Read for parts, which take turns: one that waited would keep the others waiting."""
        return await self._page(partition, after, limit, wait=0.0)

    async def _page(
        self, partition: Partition, after: Position, limit: int, *, wait: float
    ) -> Page:
        last = sequence_in(partition.id, after, self.identity)
        found = self._leftovers.pop((partition.id, last))
        found = found or await self._read(partition, last, wait)
        if found is None:
            return Page(changes=(), position=after)
        assert found.first == last + 1, (
            f"range {partition.id!r}: {found.first} was read behind {last}"
        )
        changes = found.take(limit)
        if found.left:
            self._leftovers.add((partition.id, found.first - 1), found)
        return Page(changes=changes, position=self._position(found.first - 1))

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        return parts_of.cut(found, into)

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        newest = refuse_other_wholes(parts)
        return parts_of.part_between(newest, parts[0].low, parts[-1].high)

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        return parts_of.part_between(found, low, high)

    def position_after(self, change: Change) -> Position:
        return self._position(change.sequence)

    async def news(self, at: Mapping[FeedRange, Position]) -> Collection[RangeId]:
        """Return those that ``Feed.news`` says; wait some seconds for a first of them."""
        return await self._ends.news(self._routes, at)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return await self._ends.lags(self._routes, at)

    async def _read(self, partition: Partition, last: int, wait: float) -> BlockChanges | None:
        range_id = partition.id
        if not self._routes.is_open(partition) or self._waiting.locked():
            wait = 0.0
        async with self._waiting if wait else nullcontext():
            found = await self._source.read(range_id, after=last, most=_PAGE_BYTES, wait=wait)
        changes = _behind(range_id, last, found.blocks)
        if changes is None and found.ended:
            starts = (Child(range=x, start=self._position(0)) for x in found.children)
            raise RangeEnded(range_id, tuple(starts))
        if changes is None:
            await self._check_reached(partition, last)
            return None
        self._reached[range_id] = last + changes.left
        return changes

    async def _check_reached(self, partition: Partition, last: int) -> None:
        """Refuse a position that the range has not reached, which only its writer knows."""
        range_id = partition.id
        if last <= self._reached.get(range_id, 0) or not self._routes.is_open(partition):
            return  # of what is closed any broker knows, and has refused it
        end = (await self._source.end(range_id, of_writer=True)).last
        if last > end:
            raise position_beyond(range_id, last, end)
        self._reached[range_id] = last

    async def _partition(self, range_id: RangeId) -> Partition:
        if not self._routes.partitions.has(range_in_name(range_id) or range_id):
            # It may have been opened since, and not each broker has seen that.
            await self._refresh(at_least=self._routes.topology.catalog + 1)
        return self._routes.holding(range_id)

    async def _refresh(self, *, at_least: int = 0) -> None:
        """Learn the newest topology."""
        found = await self._source.routes(at_least=at_least)
        if found.identity != self.identity:
            raise FeedRefused(
                f"the collection {self._source.name!r} was deleted and created again "
                f"while it was open: start again, after resetting the leases of this feed"
            )
        if found.topology.catalog > self._routes.topology.catalog:
            self._routes = found

    def _position(self, sequence: int) -> Position:
        return position(self.identity, sequence)


def _behind(range_id: RangeId, last: int, blocks: Sequence[Block]) -> BlockChanges | None:
    """Return the changes behind a sequence of blocks that follow each other, if any are."""
    if not blocks:
        return None
    first = expected = blocks[0].first
    for block in blocks:
        if block.first != expected or first > last + 1:
            raise FeedUnavailable(
                f"a broker left out changes of range {range_id!r} before {block.first}"
            )
        expected += block.count
    try:
        layout = joined(x.columns for x in blocks)
        changes = BlockChanges(range_id, first, expected - first, layout)
    except Damaged as error:
        raise FeedUnavailable(
            f"a broker's answer about range {range_id!r} cannot be read: {error}"
        ) from error
    changes.take(last + 1 - first)  # what the reader has
    return changes if changes.left else None
