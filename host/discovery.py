"""What the feed says that leases depend on: its ranges, where they start, and the root.

A task of its own, since a slow feed must not hold up the rounds of the coordinator. It writes
no lease: it only replaces what the coordinator decides by, and tells it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Never

from changefeed.feeds.errors import FeedError, RangeRefused, RangeUnknown
from changefeed.feeds.feed import Feed, FeedRange, Position, RangeId
from changefeed.host.decide import FeedRanges
from changefeed.host.events import HostEvents
from changefeed.host.first_leases import first_leases
from changefeed.host.settings import FeedSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet_record import settle_root
from changefeed.leases.lease import FleetRecord, RangeEnd
from changefeed.leases.timing import Timing
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import Unavailable

_AGAIN_AFTER = 5.0
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
        self._begins = False
        self._gaps: Mapping[RangeId, FeedRange] = {}
        self.sub_range = feed.sub_range
        self.ranges = FeedRanges(inherits=feed.children_inherit_positions)
        self.root: RangeEnd | None = None
        """What the leases of the fleet begin in, once that is settled."""
        self.starts: dict[RangeId, Position] = {}
        """Where the keys begin that have no lease, as far as they were asked for."""

    def look(self, *, begins: bool = False, gaps: Iterable[FeedRange] = ()) -> None:
        """Look without waiting for the interval. ``begins`` says that there are no leases, so
        that the root is to be settled; ``gaps`` are ranges whose start is to be known.
        """
        self._begins = begins
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
        if not self._begins:
            return None
        settings = self._settings
        wanted = await first_leases(self._feed, settings.start, settings.parallelism)
        root = await settle_root(self._container, wanted)
        self._changed()
        return root

    async def _settle_starts(self) -> None:
        """Settle where gaps begin; then raise the first of what was raised."""
        gaps, self._gaps = self._gaps, {}
        self.starts = {x: y for x, y in self.starts.items() if x in gaps}
        failed: list[FeedError] = []
        for name, found in gaps.items():
            if name in self.starts:
                continue
            try:
                self.starts[name] = await self._start_of(found)
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
        if inherits and len({x.start for x in first}) == 1:
            return first[0].start
        older = all(x.range.generation < found.generation for x in first)
        if first and (at == "now" if inherits else older):  # now is later than each of them
            at = "beginning"
        return await self._feed.start(found, at)
