"""Any feed as a planner sees it, by the contract of feeds alone.

Positions cannot be computed, so the end of a batch that is limited is found by reading up
to it; the tasks then read the same changes again. Without a limit the end is where the
feed is now, and nothing is read twice.

A range that was split after a batch was planned is read on through its successors, if they
take over its position: up to the end that was planned, so that nothing is lost or twice.
That holds where sequences go on through a split, as in Cosmos DB; a feed whose successors
begin anew keeps its ended ranges readable, and never gets here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from feeds.bounded import BoundedFeed
from feeds.errors import FeedRefused
from feeds.feed import (
    Change,
    Continuation,
    Feed,
    FeedRange,
    Page,
    RangeEnded,
    RangeId,
    StartAt,
)

from .access import Sight, Slice
from .offsets import Mark

T = TypeVar("T")
Opening = Callable[[], AbstractAsyncContextManager[Feed]]
Order = Callable[[Continuation], int]

_PAGE = 1000
_CALL_SECONDS = 60.0


class _Recalls(Protocol):
    def recall(self, ranges: Sequence[FeedRange]) -> None: ...


class FeedAccess:
    """See ``Access``. The feed is opened by the first call, on an event loop of its own.

    ``order`` returns the sequence that no change before a position exceeds.
    """

    def __init__(self, opening: Opening, order: Order, *, keeps_bounds: bool = False) -> None:
        self.keeps_bounds = keeps_bounds
        self._opening = opening
        self._order = order
        self._runner: asyncio.Runner | None = None
        self._stack = AsyncExitStack()
        self._inner: Feed | None = None

    def recall(self, marks: Mapping[RangeId, Mark]) -> None:
        known = [
            FeedRange(id=name, low=x.low, high=x.high) for name, x in marks.items() if x.high
        ]
        if known and self.keeps_bounds:
            cast("_Recalls", self._opened()[1]).recall(known)

    def ranges(self) -> Sequence[FeedRange]:
        return self._run(lambda feed: feed.ranges())

    def settle(self, range_id: RangeId, start: StartAt) -> Continuation:
        return self._run(lambda feed: feed.settle(range_id, start))

    def look(self, marks: Mapping[RangeId, Mark]) -> Mapping[RangeId, Sight]:
        async def all_at_once(feed: Feed) -> Mapping[RangeId, Sight]:
            sights = await asyncio.gather(
                *(_look(feed, name, x.continuation) for name, x in marks.items())
            )
            return dict(zip(marks, sights, strict=True))

        return self._run(all_at_once)

    def order(self, position: Continuation) -> int:
        return self._order(position)

    def advance(
        self, range_id: RangeId, after: Continuation, count: int | None, until: int | None
    ) -> Continuation:
        if count is not None:
            return self._run(lambda feed: self._counted(feed, range_id, after, count, until))
        now = self.settle(range_id, "now")
        order = self._order(now)
        if until is not None and order > until:
            return self._run(lambda feed: self._counted(feed, range_id, after, None, until))
        return now if order > self._order(after) else after

    def cut(self, piece: Slice, changes: int) -> Sequence[Slice]:  # noqa: ARG002 - see Access
        return [piece]

    def read(self, piece: Slice) -> Iterator[tuple[RangeId, Sequence[Change]]]:
        if piece.high and self.keeps_bounds:
            mark = Mark(continuation=piece.start, low=piece.low, high=piece.high)
            self.recall({piece.range_id: mark})
        until = self._order(piece.end)
        waiting = [piece]
        while waiting:
            piece = waiting.pop(0)
            after = piece.start
            while self._order(after) < until:
                page = self._page(piece.range_id, after, _PAGE)
                if isinstance(page, RangeEnded):
                    waiting += _taking_over(piece, after, page)
                    break
                wanted = [x for x in page.changes if x.sequence <= until]
                if wanted:
                    yield piece.range_id, wanted
                if len(wanted) < len(page.changes) or not page.changes:
                    break
                after = page.continuation

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self._stack.aclose())
            self._runner.close()
        self._runner, self._inner = None, None

    def _page(self, range_id: RangeId, after: Continuation, limit: int) -> Page | RangeEnded:
        try:
            return self._run(lambda feed: feed.read(range_id, after, limit))
        except RangeEnded as ended:
            return ended

    async def _counted(
        self,
        feed: Feed,
        range_id: RangeId,
        after: Continuation,
        count: int | None,
        until: int | None,
    ) -> Continuation:
        """Read so many changes, and return the position behind the last of them."""
        done, position = 0, after
        while count is None or done < count:
            limit = _PAGE if count is None else min(_PAGE, count - done)
            try:
                page = await feed.read(range_id, position, limit)
            except RangeEnded:
                return position
            wanted = [x for x in page.changes if until is None or x.sequence <= until]
            whole = len(wanted) == len(page.changes)
            if count is not None and len(wanted) > count - done:
                wanted, whole = wanted[: count - done], False
            if whole and page.changes:
                position, done = page.continuation, done + len(wanted)
                continue
            if wanted:
                cut = feed.continuation_after(wanted[-1])
                # Within a first transaction longer than the limit there is no position.
                behind = self._order(cut) > self._order(position)
                if behind or position != after:
                    return cut if behind else position
                return page.continuation
            return position
        return position

    def _run(self, call: Callable[[Feed], Coroutine[Any, Any, T]]) -> T:
        runner, feed = self._opened()
        return runner.run(call(BoundedFeed(feed, timeout=_CALL_SECONDS)))

    def _opened(self) -> tuple[asyncio.Runner, Feed]:
        if self._runner is None or self._inner is None:
            self._runner = asyncio.Runner()
            self._stack = AsyncExitStack()
            self._inner = self._runner.run(self._stack.enter_async_context(self._opening()))
        return self._runner, self._inner


async def _look(feed: Feed, range_id: RangeId, after: Continuation) -> Sight:
    """Ask for the lag; where there is none, whether there ever will be."""
    lag = await feed.lag(range_id, after)
    if lag > 0:
        return Sight(lag=lag)
    try:
        page = await feed.read(range_id, after, 1)
    except RangeEnded as ended:
        return Sight(lag=0, successors=ended.successors)
    return Sight(lag=len(page.changes))


def _taking_over(piece: Slice, after: Continuation, ended: RangeEnded) -> Sequence[Slice]:
    """Go on in the successors that take over the position of an ended range."""
    if any(x.start != after for x in ended.successors):
        raise FeedRefused(
            f"range {piece.range_id!r} ended at {after!r}, before {piece.end!r}, which was "
            f"seen earlier: the feed was restored from an older copy. Start from the beginning"
        )
    return [
        replace(piece, range_id=x.range.id, start=after, low=x.range.low, high=x.range.high)
        for x in ended.successors
    ]
