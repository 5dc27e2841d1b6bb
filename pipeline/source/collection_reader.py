"""A collection of a cluster as a planner sees it: ends are computed, changes come as columns.

It is read from the store of the cluster, or through its brokers: both have the same catalog,
the same positions and the same blocks (``CollectionReader``).
"""

import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from itertools import repeat
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import Child, FeedRange, Position, RangeId, StartAt
from changefeed.feeds.timestamps import start_us
from changefeed.log.errors import position_gone
from changefeed.log.format.block_format import Columns, joined
from changefeed.log.hashing import place_of
from changefeed.log.ids import position, sequence_of
from changefeed.log.protocol.messages import Block
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import PartitionBounds
from changefeed.log.reading.stored_collection import SegmentRows
from changefeed.pipeline.source.feed_reader import RETRY_SECONDS
from changefeed.pipeline.source.lineage import narrowed
from changefeed.pipeline.source.loop_thread import LoopThread
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.position_order import PositionOrder
from changefeed.pipeline.source.reader import NO_ENDS, Availability, Slice, some_between
from changefeed.pipeline.source.retries import by_name, retry_for

T = TypeVar("T")
Part: TypeAlias = Sequence[Block] | SegmentRows

_OPENING: Final = 20.0
_BEHIND: Final = 5.0
_READ_BYTES: Final = 8 * 1024 * 1024


class CollectionReader(Protocol):
    """Where a collection is read. Raises what feeds raise, but for ``RangeEnded``."""

    async def routes(self) -> Routes:
        """Return the collection as the newest catalog has it."""
        ...

    async def ends(self, names: Sequence[RangeId]) -> Mapping[RangeId, PartitionBounds]:
        """Return where partitions begin and end that the newest routes have."""
        ...

    async def sequence_before(self, name: RangeId, time_us: int) -> int:
        """Return the last sequence before the first record committed at or after a time."""
        ...

    async def part(self, name: RangeId, after: int, end: int, max_bytes: int) -> Part:
        """Return some of the records ``after < sequence <= end``, which are there.

        At least one, and about so many bytes, or else the segment of a ``StoredCollection``
        that has them. They follow each other from ``after + 1`` on, but the first block may
        begin before it, and the last end behind ``end``.
        """
        ...


Opening = Callable[[], AbstractAsyncContextManager[CollectionReader]]


class CollectionAccess:
    """See ``Access``. The collection is open on an event loop of its own, until ``close``.

    ``only`` are the ranges that are wanted, with what descends from them; all, if empty.
    What does not answer is asked again for ``patience`` seconds. A range that ends before a
    position of it is looked at again for ``behind`` seconds: a broker may be behind another.
    """

    children_inherit_positions = False

    def __init__(
        self,
        opening: Opening,
        *,
        only: Collection[RangeId] = (),
        patience: float = RETRY_SECONDS,
        behind: float = _BEHIND,
    ) -> None:
        self._opening = opening
        self._only = only
        self._patience = patience
        self._behind = behind
        self._stack = AsyncExitStack()
        self._loop = LoopThread()
        try:
            self._reader: CollectionReader = self._loop.run(
                retry_for(self._open, min(patience, _OPENING))
            )
            self._routes = self._ask(self._reader.routes)
        except BaseException:
            self.close()
            raise
        self._log = self._routes.identity
        self.positions = PositionOrder(
            order=lambda x: sequence_of(x, self._log),
            position=lambda x: position(self._log, x),
            each=1,
        )

    def identity(self) -> str:
        return ""  # every position says it

    @property
    def log(self) -> str:
        """The identity of the collection, as leases and positions have it."""
        return self._log

    def check_feed(self, offset: Offset) -> None:
        """Do nothing: every position says it."""

    def ranges(self) -> Sequence[FeedRange]:
        self._refresh()
        return narrowed(self._routes.ranges, self._only)

    def starts(self, names: Collection[RangeId], start: StartAt) -> Mapping[RangeId, Position]:
        time_us = start_us(start)
        if time_us is not None:
            found = self._before(names, time_us)
        else:
            ends = self._ends(names).items()
            found = {x: end.start if start == "beginning" else end.last for x, end in ends}
        return {name: self.positions.position(sequence) for name, sequence in found.items()}

    def look(
        self,
        marks: Mapping[RangeId, Mark],
        ends: Mapping[RangeId, Position] = NO_ENDS,  # noqa: ARG002 - all are known here
    ) -> Mapping[RangeId, Availability]:
        until = time.monotonic() + self._behind
        while True:
            self._refresh()
            seen = self._ends(marks)
            beyond = [
                x for x, m in marks.items() if self.positions.order(m.position) > seen[x].last
            ]
            if not beyond:
                break
            if time.monotonic() >= until:
                raise _beyond(beyond[0], marks[beyond[0]].position, seen[beyond[0]].last)
            time.sleep(min(0.5, self._behind))
        return {x: self._sight(x, m.position, seen[x]) for x, m in marks.items()}

    def read(self, slice_: Slice) -> Iterator[tuple[RangeId, Columns | pa.RecordBatch]]:
        name = slice_.range_id
        after, end = self.positions.order(slice_.start), self.positions.order(slice_.end)
        if after >= end:
            return iter(())
        asked = self._asking(name, after, end)
        return zip(repeat(name), self._in_order(name, after, end, asked), strict=False)

    def _in_order(
        self, name: RangeId, after: int, end: int, asked: Future[Part]
    ) -> Iterator[Columns | pa.RecordBatch]:
        """Yield the records ``after < sequence <= end``; the first are ``asked`` for."""
        return self._in_blocks(name, after, end, asked)

    def _in_blocks(
        self, name: RangeId, after: int, end: int, asked: Future[Part]
    ) -> Generator[Columns, None, tuple[SegmentRows, int] | None]:
        """Yield what does not lie in a segment.

        Return the segment that goes on behind a sequence, if one does.
        """
        try:
            while not isinstance(part := asked.result(), SegmentRows):
                columns = columns_of(part, after, end)
                after += columns.count
                if after >= end:
                    yield columns
                    return None
                asked = self._asking(name, after, end)
                yield columns  # and what follows is on its way meanwhile
        finally:
            asked.cancel()
        return part, after

    def holding(self, slices: Sequence[Slice], keys: Collection[str]) -> Sequence[Slice]:
        places = sorted({place_of(x, self._routes.topology.parts) for x in keys})

        def may_have(x: Slice) -> bool:
            found = self._routes.partition(x.range_id)
            return some_between(places, (found.part, found.low), (found.part, found.high + 1))

        return [*filter(may_have, slices)]

    def close(self) -> None:
        try:
            self._loop.run(self._stack.aclose())
        finally:
            self._loop.close()

    def _sight(self, name: RangeId, at: Position, there: PartitionBounds) -> Availability:
        done = self.positions.order(at)
        if done < there.start:
            raise position_gone(name, done, there.start)
        is_open = self._routes.is_open(self._routes.partition(name))
        children = None if is_open else self._children(name)
        end = self.positions.position(there.last)
        return Availability(lag=there.last - done, end=end, children=children)

    def _children(self, name: RangeId) -> tuple[Child, ...]:
        start = self.positions.position(0)
        return tuple(Child(range=x, start=start) for x in self._routes.children(name))

    def _before(self, names: Collection[RangeId], time_us: int) -> Mapping[RangeId, int]:
        ask = partial(self._reader.sequence_before, time_us=time_us)
        return self._ask(lambda: by_name(names, ask))

    def _ends(self, names: Collection[RangeId]) -> Mapping[RangeId, PartitionBounds]:
        return self._ask(lambda: self._reader.ends(list(names)))

    def _asking(self, name: RangeId, after: int, end: int) -> Future[Part]:
        ask = partial(self._reader.part, name, after, end, _READ_BYTES)
        return self._loop.start(retry_for(ask, self._patience))

    def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return self._loop.run(retry_for(call, self._patience))

    def _refresh(self) -> None:
        self._routes = self._ask(self._reader.routes)
        if self._routes.identity != self._log:
            name = self._routes.topology.collection
            raise FeedRefused(
                f"the collection {name!r} was deleted and created again while it was read: "
                f"start the query again with a new checkpoint directory"
            )

    async def _open(self) -> CollectionReader:
        return await self._stack.enter_async_context(self._opening())


def columns_of(blocks: Sequence[Block], after: int, end: int) -> Columns:
    """Join blocks; say what of them lies between two sequences.

    Raise ``FeedUnavailable`` for blocks that leave something out.
    """
    if not blocks or not blocks[0].first <= after + 1 < blocks[0].first + blocks[0].count:
        raise FeedUnavailable(f"what follows sequence {after} was left out of an answer")
    last = blocks[0].first - 1
    for block in blocks:
        if block.first != last + 1:
            raise FeedUnavailable(f"changes before sequence {block.first} were left out")
        last += block.count
    return Columns(
        first=after + 1,
        count=min(last, end) - after,
        skip=after + 1 - blocks[0].first,
        layout=joined(x.columns for x in blocks),
    )


def _beyond(name: RangeId, at: Position, last: int) -> FeedRefused:
    return FeedRefused(
        f"the position {at!r} lies beyond the end of range {name!r}, which has {last} changes: "
        f"it is of another cluster, or the store was restored from an older copy. Start the "
        f"query again with a new checkpoint directory"
    )
