"""What the feed says that leases depend on: its ranges, where they start, and the root, where
a fleet begins: settled once for all its hosts.

A task of its own, since a slow feed must not hold up the rounds of the coordinator. It writes
no lease: it only replaces what the coordinator decides by, and tells it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil, inf
from typing import Never

from changefeed.feeds.errors import FeedError, FeedRefused, RangeRefused, RangeUnknown
from changefeed.feeds.feed import (
    Child,
    Feed,
    FeedRange,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.host.decide import FeedRanges
from changefeed.host.events import HostEvents
from changefeed.host.settings import FeedSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet_record import settle_root
from changefeed.leases.lease import FleetRecord, RangeEnd
from changefeed.leases.timing import Timing
from changefeed.runtime.calls import for_each
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import Unavailable

_AGAIN_AFTER = 5.0
_AT_ONCE = 8
_BREATH = 0.05
_SOONEST = 1.0  # a listing that flickers must not keep the feed busy
_LATER = (Unavailable, RangeRefused, RangeUnknown)


class Discovery:
    """Asks the feed for its ranges now and then; calls ``changed`` when there is news.

    ``recorded`` is given the record of the fleet each time.
    """

    def __init__(
        self,
        feed: Feed,
        container: LeaseContainer,
        settings: FeedSettings,
        *,
        events: HostEvents,
        changed: Callable[[], None],
        timing: Timing,
        clock: Clock = elapsed_time,
        recorded: Callable[[FleetRecord], Awaitable[None]],
    ) -> None:
        self._feed = feed
        self._container = container
        self._settings = settings
        self._events = events
        self._changed = changed
        self._recorded = recorded
        self._interval = timing.ranges_interval
        self._clock = clock
        self._now = asyncio.Event()
        self._gaps: Mapping[RangeId, FeedRange] = {}
        self.sub_range = feed.sub_range
        self.ranges = FeedRanges(inherits=feed.children_inherit_positions)
        self.begins = False
        """Whether there are no leases, as of the last round: then the root is to be settled."""
        self.root: RangeEnd | None = None
        """What the leases of the fleet begin in, once that is settled."""
        self.starts: dict[RangeId, Position] = {}
        """Where the keys begin that have no lease, as far as they were asked for."""

    def look(self, gaps: Iterable[FeedRange]) -> None:
        """Look at once, and settle where ``gaps`` start: ranges that have no lease."""
        self._gaps = {x.id: x for x in gaps}
        self._now.set()

    async def run(self) -> Never:
        """Raise what asking again cannot mend."""
        while True:
            wait = self._interval
            try:
                await self._look()
            except _LATER as error:
                wait = min(wait, _AGAIN_AFTER)
                self._events.retrying("ranges", error, wait)
            await asyncio.sleep(_BREATH)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, wait - _BREATH)):
                    await self._now.wait()
            self._now.clear()

    async def _look(self) -> None:
        before, asked = self.ranges, self._clock()
        if asked >= before.asked + _SOONEST:
            self.ranges = replace(before, listed=await self._feed.ranges(), asked=asked)
        record = await self._container.fleet()
        await self._recorded(record)
        if self.root is None:
            self.root = record.root or await self._settled()
        try:
            await self._settle_starts()
        finally:
            if before.asked == -inf or before.listed != self.ranges.listed:
                self._changed()

    async def _settled(self) -> RangeEnd | None:
        """Settle the root where there are no leases yet: until it is, no gap can begin."""
        if not self.begins:
            return None
        settings = self._settings
        wanted = await _first_leases(self._feed, settings.start, settings.parallelism)
        if not self.begins:  # others have begun meanwhile
            return (await self._container.fleet()).root
        root = await settle_root(self._container, wanted)
        self._changed()
        return root

    async def _settle_starts(self) -> None:
        """Settle where gaps begin; then raise the first of what was raised."""
        gaps, self._gaps = self._gaps, {}
        self.starts = {x: y for x, y in self.starts.items() if x in gaps}
        failed: list[FeedError] = []
        for found in [x for x in gaps.values() if x.id not in self.starts]:
            try:
                self.starts[found.id] = await self._start_of(found)
                self._changed()
            except (RangeRefused, RangeUnknown) as error:
                failed.append(error)
        if failed:
            raise failed[0]

    async def _start_of(self, found: FeedRange) -> Position:
        """Return where keys without a lease begin: with the fleet, or with a later range."""
        root = () if self.root is None else self.root.children
        first = [x for x in root if x.range.shares_keys_with(found)]
        inherits, at = self.ranges.inherits, self._settings.start
        same = [x.start for x in first if inherits or x.range.whole == found.whole]
        if len({*same}) == 1:
            return same[0]
        if inherits:
            is_later = at == "now"  # than each of them
        else:
            is_later = all(x.range.generation < found.generation for x in first)
        return await self._feed.start(found, "beginning" if first and is_later else at)


async def _first_leases(feed: Feed, start: StartAt, parallelism: int) -> RangeEnd:
    """Return the root: what a fleet reads first, each range with its start resolved.

    From the beginning that is the oldest ranges. From a time, or from now, what is over by then
    is left out: what it goes on in is there. A range of which the feed refuses a start is left
    out, too: it is created later, if it can be, as one that has no lease. Ranges are cut where
    it takes sub-ranges to make ``parallelism`` of them. Raise ``FeedRefused`` where they
    cannot be.
    """
    ranges = await feed.ranges()
    starts = {x.range.id: x for x in await _starts(feed, ranges, start) if x is not None}
    if start == "beginning":
        left_out = frozenset[RangeId]()
    else:
        left_out = await _over(feed, ranges, starts)
    kept = {x.id for x in ranges} - left_out
    oldest = [x for x in ranges if x.id in kept and kept.isdisjoint(x.parents)]
    first = [starts[x.id] for x in oldest if x.id in starts]
    return RangeEnd(children=tuple(_in_parts(feed, first, parallelism)))


def _in_parts(feed: Feed, first: Sequence[Child], parallelism: int) -> Sequence[Child]:
    """Cut ranges into as many sub-ranges each as it takes to have so many leases of them.

    Raise ``FeedRefused`` where the feed does not cut its ranges.
    """
    into = ceil(parallelism / len(first)) if first else 1
    assert into * len(first) >= parallelism or not first, f"{into} parts each are too few"
    if into == 1:
        return first
    try:
        return [replace(x, range=y) for x in first for y in feed.split(x.range, into)]
    except FeedRefused as error:
        raise FeedRefused(
            f"feed.parallelism is {parallelism}, and this feed has {len(first)} ranges, "
            f"which cannot be read in parts: leave the setting out ({error})"
        ) from error


async def _starts(
    feed: Feed, ranges: Sequence[FeedRange], start: StartAt
) -> Sequence[Child | None]:
    async def resolved(found: FeedRange) -> Child | None:
        try:
            return Child(range=found, start=await feed.start(found, start))
        except RangeRefused:
            return None

    return await for_each(ranges, resolved, at_once=_AT_ONCE)


async def _over(
    feed: Feed, ranges: Sequence[FeedRange], starts: dict[RangeId, Child]
) -> frozenset[RangeId]:
    """Return the ranges that need no reader: they and their relatives ended by the start."""
    parents = {y for x in ranges for y in x.parents}

    async def has_ended(found: FeedRange) -> bool:
        try:
            await feed.read(found, starts[found.id].start, 1)
        except RangeEnded:
            return True
        return False

    asked = [x for x in ranges if x.id in parents and x.id in starts]
    answers = await for_each(asked, has_ended, at_once=_AT_ONCE)
    over = {x.id for x, ended in zip(asked, answers, strict=True) if ended}
    listed = {x.id for x in ranges}
    while waiting := _waiting_for_others(ranges, listed, over):
        over -= waiting
    return frozenset(over)


def _waiting_for_others(
    ranges: Iterable[FeedRange], listed: Collection[RangeId], over: set[RangeId]
) -> set[RangeId]:
    """Return the children of ranges that are read, and the other parents of such children."""
    families = [(x.id, {*x.parents}.intersection(listed)) for x in ranges]
    return {y for x, of in families if not of <= over for y in {x, *of} & over}
