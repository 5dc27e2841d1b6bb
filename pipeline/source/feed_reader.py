"""Any feed as a planner sees it, by the contract of feeds and an order of its positions.

How many changes lie between two positions only the feed knows, so a batch that is limited
ends at a distance: so many transactions on, as far as positions show them. Nothing is read
to find it.

A range that was split or merged after a batch was planned is read on through the children
that took over its position, up to the planned end: nothing is lost or repeated, and changes
come in the order and under the name of the planned range. So a repeated batch is the same,
even after its ranges have split or merged.
"""

import heapq
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Any, Final, TypeVar

from changefeed.feeds.backend import PositionTraits
from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeUnknown
from changefeed.feeds.feed import (
    Change,
    Feed,
    FeedRange,
    Page,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.feeds.raw_pages import RawPage, ReadsRawPages, Rows
from changefeed.pipeline.source.lineage import narrowed
from changefeed.pipeline.source.loop_thread import LoopThread
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.position_order import PositionOrder
from changefeed.pipeline.source.reader import NO_ENDS, Availability, Slice, some_between
from changefeed.pipeline.source.retries import RetryingFeed, by_name, retry_for

T = TypeVar("T")
Opening = Callable[[], AbstractAsyncContextManager[Feed]]

RETRY_SECONDS: Final = 60.0
_CALL_SECONDS: Final = 60.0
_OPENING: Final = 20.0
_PAGE: Final = 10_000
"""Changes that are asked for at once, at the most."""


class FeedAccess:
    """See ``Access``. The feed is open on an event loop of its own, until ``close``.

    ``only`` are the ranges that are wanted, with what descends from them; all, if empty.
    A feed that does not answer is asked again for ``patience`` seconds.
    """

    def __init__(
        self,
        opening: Opening,
        traits: PositionTraits,
        *,
        only: Collection[RangeId] = (),
        patience: float = RETRY_SECONDS,
    ) -> None:
        self._opening = opening
        self._traits = traits
        self.positions = PositionOrder(
            order=traits.order,
            position=traits.position,
            step=traits.step,
            beside=traits.beside,
        )
        self._order, self._distance = self.positions.order, self.positions.distance
        self._only = only
        self._patience = patience
        self._stack = AsyncExitStack()
        self._loop = LoopThread()
        try:
            self._inner = self._loop.run(retry_for(self._open, min(patience, _OPENING)))
        except BaseException:
            self._loop.close()
            raise
        self.children_inherit_positions = self._inner.children_inherit_positions

    def identity(self) -> str:
        return self._traits.identity(self._inner)

    def check_feed(self, offset: Offset) -> None:
        self._check(offset.feed)

    def ranges(self) -> Sequence[FeedRange]:
        return narrowed(self._run(lambda feed: feed.ranges()), self._only)

    def starts(self, names: Collection[RangeId], start: StartAt) -> Mapping[RangeId, Position]:
        return self._run(
            lambda feed: by_name(names, lambda x: feed.start(FeedRange(id=x), start))
        )

    def look(
        self, marks: Mapping[RangeId, Mark], ends: Mapping[RangeId, Position] = NO_ENDS
    ) -> Mapping[RangeId, Availability]:
        return self._run(
            lambda feed: by_name(marks, lambda x: self._look(feed, x, marks[x], ends.get(x)))
        )

    def read(self, slice_: Slice) -> Iterator[tuple[RangeId, Rows | Sequence[Change]]]:
        self._check(slice_.feed)
        where = _range_at(slice_.range_id, slice_)
        size = self._distance(slice_.start, slice_.end)
        found: Iterator[Rows | Sequence[Change]]
        if isinstance(self._inner, ReadsRawPages) and size > 0:
            asked = self._fetching(self._inner, where, slice_.start, (slice_.each or 1) * size)
            found = self._rows(self._inner, where, slice_, asked)
        else:
            found = self._pages(where, slice_.start, slice_.end)
        return zip(repeat(slice_.range_id), found, strict=False)

    def holding(self, slices: Sequence[Slice], keys: Collection[str]) -> Sequence[Slice]:
        if self._traits.hash_of is None:
            return slices
        ask = partial(self._traits.hash_of, self._inner)
        found = self._run(lambda feed: by_name(keys, lambda x: feed.ask(partial(ask, x))))
        hashes = sorted(x for x in found.values() if x is not None)
        if len(hashes) < len(found):
            return slices
        return [x for x in slices if not x.high or some_between(hashes, x.low, x.high)]

    def close(self) -> None:
        try:
            self._loop.run(self._stack.aclose())
        finally:
            self._loop.close()

    def _check(self, feed: str) -> None:
        if feed and feed != self.identity():
            raise FeedRefused(
                f"the query has read {feed!r}, and what is at its address now is "
                f"{self.identity()!r}: the container was deleted and recreated, or is another "
                f"one. Its positions mean nothing here. Start the query again with a new "
                f"checkpoint directory"
            )

    async def _look(
        self, feed: RetryingFeed, name: RangeId, mark: Mark, end: Position | None
    ) -> Availability:
        """Ask for a change and, where there is one, for the end of the range, unless one is
        given. In a snapshot the end is that of the snapshot.
        """
        found, after, positions = _range_at(name, mark), mark.position, self.positions
        try:
            page = await feed.read(found, after, 1)
            if not page.changes:
                return Availability(lag=0)
            each = self._changes_of_each([x.sequence for x in page.changes])
            snapshot_end = self._traits.snapshot_end(after)
            if snapshot_end is not None:
                left = positions.distance(page.position, snapshot_end)
                return Availability(lag=1 + max(0, left), end=snapshot_end, each=each)
            now = end or await feed.start(found, "now")
        except RangeEnded as ended:
            return Availability(lag=0, children=ended.children)
        except RangeUnknown:
            return Availability(lag=0)  # it has ended since: the next look says in which ranges
        if positions.order(now) < positions.order(after):
            raise FeedUnavailable(
                f"range {found.id!r} has changes behind {after!r}, and ends at {now!r}: a "
                f"replica is behind, or its LSNs began again when ranges were merged"
            )
        end = max(page.position, now, key=positions.order)
        lag = 1 + positions.distance(page.position, end)
        return Availability(lag=lag, end=end, each=each)

    def _pages(
        self, found: FeedRange, after: Position, end: Position
    ) -> Iterator[Sequence[Change]]:
        """Yield the changes between two positions, also from children of the range."""
        until, each = self._order(end), 1
        while self._order(after) < until:
            limit = min(_PAGE, each * self._distance(after, end))
            try:
                page = self._run(
                    partial(self._page, found=found, after=after, end=end, limit=limit)
                )
            except RangeEnded as ended:
                yield from self._taken_over(ended, after, end)
                return
            wanted = [x for x in page.changes if x.sequence <= until]
            if wanted:
                yield wanted
            if len(wanted) < len(page.changes):
                return
            after = page.position
            each = self._changes_of_each([x.sequence for x in page.changes])

    def _rows(
        self, feed: ReadsRawPages, found: FeedRange, slice_: Slice, asked: Future[RawPage]
    ) -> Iterator[Rows | Sequence[Change]]:
        """Yield the same in columns. Pages are asked for before the last one is cut.

        Unless the planner has seen how large transactions are, only the first page shows it.
        Until that is cut, they are taken to have one change each: a second request costs less
        than changes behind the end.
        """
        after, end, each = slice_.start, slice_.end, slice_.each or 0
        until = self._order(end)
        try:
            while True:
                try:
                    page = asked.result()
                except RangeEnded as ended:
                    yield from self._taken_over(ended, after, end)
                    return
                at = page.position
                if page.body is None or self._order(at) <= self._order(after):
                    break  # a replica may be behind
                ahead, left = self._order(at) < until, max(1, self._distance(at, end))
                early = ahead and (each > 0 or left >= _PAGE)
                if early:
                    asked = self._fetching(feed, found, at, max(1, each) * left)
                rows = feed.rows(found.id, page)
                after, each = at, self._changes_of_each(rows.sequences)
                if ahead and not early:
                    asked = self._fetching(feed, found, at, each * left)
                if wanted := rows.up_to(until):
                    yield wanted
                if not ahead:
                    return
        finally:
            asked.cancel()
        yield from self._pages(found, after, end)  # which asks until there is what was seen

    def _fetching(
        self, feed: ReadsRawPages, found: FeedRange, after: Position, limit: int
    ) -> Future[RawPage]:
        return self._loop.start(self._retrying().fetch(feed, found, after, min(_PAGE, limit)))

    def _changes_of_each(self, sequences: Sequence[int]) -> int:
        """Return how many changes a transaction has, as far as a page shows it: at least one.

        Distances count transactions, and pages are asked for by changes.
        """
        if not sequences:
            return 1
        gone = sequences[-1] - sequences[0]
        return -(-len(sequences) // (1 + gone // self.positions.step))

    async def _page(
        self,
        feed: RetryingFeed,
        *,
        found: FeedRange,
        after: Position,
        end: Position,
        limit: int,
    ) -> Page:
        """Return a page on the way to an end that the range has reached before."""

        async def read() -> Page:
            page = await feed.once.read(found, after, limit)
            if not page.changes and self._order(page.position) < self._order(end):
                raise FeedUnavailable(
                    f"range {found.id!r} says that it ends at {page.position!r}, but it "
                    f"was seen at {end!r}: a replica is behind"
                )
            return page

        return await feed.ask(read)

    def _taken_over(
        self, ended: RangeEnded, after: Position, end: Position
    ) -> Iterator[Sequence[Change]]:
        """Continue in the children that take over the position of an ended range."""
        if any(x.start != after for x in ended.children):
            raise FeedRefused(
                f"range {ended.range_id!r} ended at {after!r}, before {end!r}, which was seen "
                f"earlier: the feed was restored from an older copy. Start from the beginning"
            )
        lines = [self._pages(x.range, after, end) for x in ended.children]
        changes = heapq.merge(*map(chain.from_iterable, lines), key=attrgetter("sequence"))
        while page := list(islice(changes, _PAGE)):
            yield page

    def _run(self, call: Callable[[RetryingFeed], Coroutine[Any, Any, T]]) -> T:
        return self._loop.run(call(self._retrying()))

    def _retrying(self) -> RetryingFeed:
        return RetryingFeed(self._inner, timeout=_CALL_SECONDS, patience=self._patience)

    async def _open(self) -> Feed:
        return await self._stack.enter_async_context(self._opening())


def _range_at(name: RangeId, at: Mark | Slice) -> FeedRange:
    return FeedRange(id=name, low=at.low, high=at.high)
