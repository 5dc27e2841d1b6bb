"""Any feed as a planner sees it, by the contract of feeds and an order of its positions.

How many changes lie between two positions only the feed knows. So the end of a batch that
is limited is found by reading up to it; the tasks get what was read from a file
(``kept_pages``), or read it again. It need not be found so where it cannot matter: if even
transactions of the largest size would fit, or without a limit, the end is where the feed is
now, and only the tasks read.

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
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, TypeVar

from changefeed.feeds.backlog import lag_of
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
from changefeed.pipeline.source.counting import PAGE, PageSeen, counted, read_changes
from changefeed.pipeline.source.kept_pages import KeptPages, kept_pages
from changefeed.pipeline.source.lineage import narrowed
from changefeed.pipeline.source.loop_thread import LoopThread
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.position_order import PositionOrder
from changefeed.pipeline.source.reader import Availability, Slice, Step, StepResult
from changefeed.pipeline.source.retries import RetryingFeed, by_name, patiently
from changefeed.runtime.logs import get_logger

_log = get_logger()

T = TypeVar("T")
Opening = Callable[[], AbstractAsyncContextManager[Feed]]

PATIENCE: Final = 60.0
_CALL_SECONDS: Final = 60.0
_OPENING: Final = 20.0


def _nameless(_: Feed) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedKind:
    """What the contract does not say about a feed.

    ``identity`` returns what offsets are to say of the feed: its identity, where positions do
    not say it.
    """

    order_of_positions: PositionOrder
    identity: Callable[[Feed], str] = _nameless


class FeedAccess:
    """See ``Access``. The feed is open on an event loop of its own, until ``close``.

    ``only`` are the ranges that are wanted, with what descends from them; all, if empty.
    A feed that does not answer is asked again for ``patience`` seconds.
    """

    positions_count_changes = False

    def __init__(
        self,
        opening: Opening,
        kind: FeedKind,
        *,
        only: Collection[RangeId] = (),
        patience: float = PATIENCE,
    ) -> None:
        self._opening = opening
        self._kind = kind
        self._scale = kind.order_of_positions
        self._only = only
        self._patience = patience
        self._kept = KeptPages(self._scale)
        self._stack = AsyncExitStack()
        self._loop = LoopThread()
        try:
            self._inner = self._loop.run(patiently(self._open, min(patience, _OPENING)))
        except BaseException:
            self._loop.close()
            raise
        self.children_inherit_positions = self._inner.children_inherit_positions

    def identity(self) -> str:
        return self._kind.identity(self._inner)

    def check_feed(self, offset: Offset) -> None:
        self._check(offset.feed)

    def ranges(self) -> Sequence[FeedRange]:
        return narrowed(self._run(lambda feed: feed.ranges()), self._only)

    def starts(self, names: Collection[RangeId], start: StartAt) -> Mapping[RangeId, Position]:
        return self._run(
            lambda feed: by_name(names, lambda x: feed.start(FeedRange(id=x), start))
        )

    def look(self, marks: Mapping[RangeId, Mark]) -> Mapping[RangeId, Availability]:
        return self._run(lambda feed: by_name(marks, lambda x: self._look(feed, x, marks[x])))

    def order(self, position: Position) -> int:
        return self._scale.order(position)

    def distance(self, begin: Position, end: Position) -> int:
        return self._scale.distance(begin, end)

    def advance(self, steps: Mapping[RangeId, Step]) -> Mapping[RangeId, StepResult]:
        return self._run(
            lambda feed: by_name(steps, lambda x: self._advanced(feed, x, steps[x]))
        )

    def cut(self, piece: Slice, changes: int) -> Sequence[Slice]:
        pieces = self._scale.cut(piece, changes)
        return [replace(x, kept=self._kept.file_of(x)) for x in pieces]

    def read(self, piece: Slice) -> Iterator[tuple[RangeId, Rows | Sequence[Change]]]:
        self._check(piece.feed)
        found: Iterator[Rows | Sequence[Change]]
        if isinstance(self._inner, ReadsRawPages):
            found = self._kept_or_asked(self._inner, piece)
        else:
            found = self._pages(_range_at(piece.range_id, piece), piece.start, piece.end)
        for changes in found:
            yield piece.range_id, changes

    def close(self) -> None:
        try:
            self._loop.run(self._stack.aclose())
        finally:
            self._loop.close()
            self._kept.close()

    def _check(self, feed: str) -> None:
        if feed and feed != self.identity():
            raise FeedRefused(
                f"the query has read {feed!r}, and what is at its address now is "
                f"{self.identity()!r}: the container was deleted and recreated, or is another "
                f"one. Its positions mean nothing here. Start the query again with a new "
                f"checkpoint directory"
            )

    async def _look(self, feed: RetryingFeed, name: RangeId, mark: Mark) -> Availability:
        """Ask for a change; where there is one, how many there are, if it does not say."""
        raw, found, after = self._inner, _range_at(name, mark), mark.position
        try:
            if isinstance(raw, ReadsRawPages):
                page = await feed.fetch(raw, found, after, 1)
                return Availability(lag=raw.lag_at(found.id, page))
            if not (await feed.read(found, after, 1)).changes:
                return Availability(lag=0)
        except RangeEnded as ended:
            return Availability(lag=0, children=ended.children)
        return Availability(lag=max(1, await lag_of(feed, found, after) or 1))

    async def _advanced(self, feed: RetryingFeed, name: RangeId, step: Step) -> StepResult:
        found = _range_at(name, step)
        if step.count is None:
            return StepResult(at=await self._end(feed, found, step))
        largest = self._scale.largest
        if step.lag * largest <= step.count:  # else it would be asked for in vain
            end = await self._end(feed, found, step)
            if self.distance(step.after, end) * largest <= step.count:
                return StepResult(at=end)
        if isinstance(self._inner, ReadsRawPages):
            if step.exceed:  # another batch begins
                self._kept.forget(found.id)
            read = partial(self._read_raw, feed, self._inner, found)
        else:
            read = partial(read_changes, feed, found)
        return await counted(read, self._scale, step)

    async def _read_raw(
        self,
        feed: RetryingFeed,
        raw: ReadsRawPages,
        found: FeedRange,
        after: Position,
        limit: int,
    ) -> PageSeen:
        """Read a page to count it, and keep it for the tasks."""
        page = await feed.fetch(raw, found, after, limit)
        if page.body is None:
            return PageSeen(sequences=(), position=self._scale.position, end=page.position)
        sequences = raw.rows(found.id, page).sequences
        self._kept.keep(found.id, after, page)
        return PageSeen(sequences=sequences, position=self._scale.position, end=page.position)

    async def _end(self, feed: Feed, found: FeedRange, step: Step) -> Position:
        """Return where a range is now, or ``until``, whichever comes first."""
        order = self._scale.order
        try:
            now = await feed.start(found, "now")
        except RangeUnknown:
            return step.after  # the range has ended since
        if order(now) < order(step.after):
            raise FeedUnavailable(
                f"range {found.id!r} has changes behind {step.after!r}, and ends at {now!r}: a "
                f"replica is behind, or its LSNs began again when ranges were merged"
            )
        if step.until is None or order(now) <= order(step.until):
            return now
        return max(step.after, step.until, key=order)

    def _pages(
        self, found: FeedRange, after: Position, end: Position
    ) -> Iterator[Sequence[Change]]:
        """Yield the changes between two positions, also from children of the range."""
        until, each = self.order(end), 1
        while self.order(after) < until:
            limit = min(PAGE, each * self.distance(after, end))
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

    def _kept_or_asked(
        self, feed: ReadsRawPages, piece: Slice
    ) -> Iterator[Rows | Sequence[Change]]:
        """Yield the changes of a slice: those that the planner has kept, then the others."""
        after, until = piece.start, self.order(piece.end)
        if piece.kept:
            try:
                for page in kept_pages(piece.kept):
                    done = self.order(after)
                    if self.order(page.position) <= done:
                        continue  # of a slice before this one
                    rows = feed.rows(piece.range_id, page).behind(done).up_to(until)
                    after = page.position
                    if rows:
                        yield rows
                    if self.order(after) >= until:
                        return
            except OSError as error:
                _log.debug("pages.not_kept", file=piece.kept, reason=str(error))
        yield from self._rows(feed, _range_at(piece.range_id, piece), after, piece.end)

    def _rows(
        self, feed: ReadsRawPages, found: FeedRange, after: Position, end: Position
    ) -> Iterator[Rows | Sequence[Change]]:
        """Yield the same in columns. Each page is asked for before the last one is cut.

        Until one was cut, transactions are taken to be as large as they may be: a page that
        holds what lies behind the end, too, costs less than pages that are too small.
        """
        until, each = self.order(end), self._scale.largest
        if self.order(after) >= until:
            return
        asked = self._fetching(feed, found, after, each * self.distance(after, end))
        try:
            while True:
                try:
                    page = asked.result()
                except RangeEnded as ended:
                    yield from self._taken_over(ended, after, end)
                    return
                at = page.position
                if page.body is None or self.order(at) <= self.order(after):
                    break  # a replica may be behind
                ahead = self.order(at) < until
                if ahead:
                    asked = self._fetching(feed, found, at, each * self.distance(at, end))
                rows = feed.rows(found.id, page)
                if wanted := rows.up_to(until):
                    yield wanted
                if not ahead:
                    return
                after, each = at, self._changes_of_each(rows.sequences)
        finally:
            asked.cancel()
        yield from self._pages(found, after, end)  # which asks until there is what was seen

    def _fetching(
        self, feed: ReadsRawPages, found: FeedRange, after: Position, limit: int
    ) -> Future[RawPage]:
        return self._loop.start(self._retrying().fetch(feed, found, after, min(PAGE, limit)))

    def _changes_of_each(self, sequences: Sequence[int]) -> int:
        """Return how many changes a transaction has, as far as a page shows it: at least one.

        Distances count transactions, and pages are asked for by changes.
        """
        if not sequences:
            return 1
        gone = sequences[-1] - sequences[0]
        return -(-len(sequences) // (1 + gone // self._scale.step))

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
            if not page.changes and self.order(page.position) < self.order(end):
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
        while page := list(islice(changes, PAGE)):
            yield page

    def _run(self, call: Callable[[RetryingFeed], Coroutine[Any, Any, T]]) -> T:
        return self._loop.run(call(self._retrying()))

    def _retrying(self) -> RetryingFeed:
        return RetryingFeed(self._inner, timeout=_CALL_SECONDS, patience=self._patience)

    async def _open(self) -> Feed:
        return await self._stack.enter_async_context(self._opening())


def _range_at(name: RangeId, at: Mark | Step | Slice) -> FeedRange:
    return FeedRange(id=name, low=at.low, high=at.high)
