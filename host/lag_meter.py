"""How far the ranges of a host are behind: measured for all of them at once.

Every ``lag_interval``, and soon after a range was acquired. The feed counts them in one
call, and of those that are behind the oldest change is looked at. Of what it leaves out nothing
is known.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Never, Protocol

from changefeed.feeds.backlog import with_oldest
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, FeedRange, Position, RangeId
from changefeed.host.events import HostEvents, Lag
from changefeed.runtime.for_each import for_each

_AT_ONCE = 16
_MOMENT = 0.1  # in it, more ranges may be acquired


class Reading(Protocol):
    """What a host reads."""

    @property
    def ranges(self) -> Collection[RangeId]: ...

    def reached(self, range_id: RangeId) -> tuple[FeedRange, Position] | None:
        """Return a range, and the position below which everything is done; ``None`` if it is
        not read.
        """
        ...

    def is_behind(self, range_id: RangeId, changes: int) -> None:
        """Take note of how many changes a range is behind."""
        ...


class LagMeter:
    """See the module. ``run`` it while the host works."""

    def __init__(
        self,
        feed: Feed,
        *,
        every: float,
        events: HostEvents,
        wall: Callable[[], float],
    ) -> None:
        self._feed = feed
        self._every = every
        self._events = events
        self._wall = wall
        self._new: set[RangeId] = set()
        self._acquired = asyncio.Event()

    def acquired(self, range_id: RangeId) -> None:
        """Measure it soon."""
        self._new.add(range_id)
        self._acquired.set()

    async def run(self, reading: Reading) -> Never:
        """Measure what is read, for as long as the host works."""
        clock = asyncio.get_running_loop().time
        due_at = clock()
        while True:
            ranges, self._new = self._new, set()
            if clock() >= due_at:
                ranges, due_at = {*reading.ranges}, clock() + self._every
            try:
                await self._measure(ranges, reading)
            except FeedError as error:
                self._events.retrying("lag", error, max(0.0, due_at - clock()))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_at):
                    await self._acquired.wait()
                    await asyncio.sleep(_MOMENT)
            self._acquired.clear()

    async def _measure(self, ranges: Collection[RangeId], reading: Reading) -> None:
        positions = dict(x for x in map(reading.reached, ranges) if x is not None)
        if not positions:
            return
        counts = await self._feed.lags(positions)

        async def measure(read: FeedRange) -> None:
            changes = counts[read.id]
            found = await with_oldest(self._feed, read, positions[read], changes=changes)
            if reading.reached(read.id) is not None:
                reading.is_behind(read.id, found.changes)
                self._events.lag(read.id, Lag(found.changes, found.seconds(self._wall())))

        counted = [x for x in positions if x.id in counts]
        await for_each(counted, measure, at_once=_AT_ONCE)
