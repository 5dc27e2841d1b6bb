"""How far the ranges of a host are behind: measured for all of them at once.

Every ``feed.lag_interval``, and soon after a range was acquired. A feed that answers for many
ranges (``AnswersForMany``) counts them in one call, and of those that are behind the oldest
change is looked at; others are asked range by range, a few at a time.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Never, Protocol

from changefeed.feeds.backlog import Backlog, measure_backlog, with_oldest
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import AnswersForMany, Continuation, Feed, RangeId
from changefeed.host.events import HostEvents, Lag
from changefeed.runtime.for_each import for_each

_AT_ONCE = 16
_MOMENT = 0.1  # in it, more ranges may be acquired

Positions = Mapping[RangeId, Continuation]


class Reading(Protocol):
    """What a host reads."""

    @property
    def reached(self) -> Positions:
        """Below which positions everything is done, by range."""
        ...

    def reads(self, range_id: RangeId) -> bool: ...


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
        self._acquired = asyncio.Event()

    def acquired(self) -> None:
        """Measure what is new soon."""
        self._acquired.set()

    async def run(self, reading: Reading) -> Never:
        """Measure what is read, for as long as the host works."""
        clock = asyncio.get_running_loop().time
        measured: set[RangeId] = set()
        due_at = clock()
        while True:
            if clock() >= due_at:
                measured.clear()
                due_at = clock() + self._every
            positions = {x: y for x, y in reading.reached.items() if x not in measured}
            measured |= positions.keys()
            try:
                await self._measure(positions, reading)
            except FeedError as error:
                self._events.retrying("lag", error, max(0.0, due_at - clock()))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_at):
                    await self._acquired.wait()
                    await asyncio.sleep(_MOMENT)
            self._acquired.clear()

    async def _measure(self, positions: Positions, reading: Reading) -> None:
        """Measure each; then raise the first of what was raised."""
        counts: Mapping[RangeId, int] = {}
        if isinstance(self._feed, AnswersForMany) and positions:
            counts = await self._feed.lags(positions)
        failed: list[FeedError] = []

        async def measure(range_id: RangeId) -> None:
            try:
                found = await self._behind(range_id, positions[range_id], counts.get(range_id))
            except FeedError as error:
                failed.append(error)
            else:
                if reading.reads(range_id):
                    lag = Lag(found.changes, found.seconds(self._wall()))
                    self._events.lag(range_id, lag)

        await for_each(positions, measure, at_once=_AT_ONCE)
        if failed:
            raise failed[0]

    async def _behind(
        self, range_id: RangeId, after: Continuation, changes: int | None
    ) -> Backlog:
        if changes is None:
            return await measure_backlog(self._feed, range_id, after)
        return await with_oldest(self._feed, range_id, after, changes=changes)
