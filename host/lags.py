"""How far ranges are behind: those that this host reads, and those that no host reads.

The feed counts the former in one call, every ``lag_interval``, and soon after a range was
acquired, but for those whose readers have just found nothing. Of what it leaves out nothing is
known. The oldest change is read only where the worker of its range has not read it yet.

A range that is paused, or whose keys others have, or that belongs to a processor of another
kind, has no host that measures it. So that its lag is in the metrics all the same, and once,
one host reports it for the fleet (``Fleet.reporter``). One that is new is measured soon, the
others each time that ranges are looked for, because each costs a read of its lease.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Never

from changefeed.feeds.backlog import Backlog, Backlogs, with_oldest
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, FeedRange, RangeId
from changefeed.host.events import HostEvents, Lag
from changefeed.host.reader import IdleRanges
from changefeed.host.worker import WorkerPool
from changefeed.leases.container import LeaseContainer
from changefeed.leases.timing import Timing
from changefeed.runtime.calls import for_each
from changefeed.runtime.errors import StoreError

_AT_ONCE = 16
_UNASSIGNED_AT_ONCE = 8
_MOMENT = 0.1  # in it, more ranges may be acquired


class LagMeter:
    """See the module. Run ``measure_own`` and ``measure_unassigned`` while the host works."""

    def __init__(
        self,
        feed: Feed,
        container: LeaseContainer,
        timing: Timing,
        *,
        idle: IdleRanges,
        events: HostEvents,
        wall: Callable[[], float],
    ) -> None:
        self._feed = feed
        self._container = container
        self._timing = timing
        self._idle = idle
        self._events = events
        self._wall = wall
        self._clock = asyncio.get_running_loop().time
        self._new: set[RangeId] = set()
        self._acquired = asyncio.Event()
        self._measured: dict[RangeId, float] = {}  # when, of those that no host reads

    def acquired(self, range_id: RangeId) -> None:
        """Measure it soon."""
        self._new.add(range_id)
        self._acquired.set()

    async def measure_own(self, pool: WorkerPool) -> Never:
        """Measure what has a worker."""
        due_at = self._clock()
        while True:
            ranges, self._new = self._new, set()
            if self._clock() >= due_at:
                ranges, due_at = {*pool.workers}, self._clock() + self._timing.lag_interval
            try:
                await self._measure_all(ranges, pool)
            except FeedError as error:
                self._events.retrying("lag", error, max(0.0, due_at - self._clock()))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_at):
                    await self._acquired.wait()
                    await asyncio.sleep(_MOMENT)
            self._acquired.clear()

    async def _measure_all(self, ranges: Collection[RangeId], pool: WorkerPool) -> None:
        workers = [pool.workers[x] for x in ranges if x in pool.workers]
        positions = {x.owned.lease.range: x.reached for x in workers}
        since = self._clock() - self._timing.lag_interval
        asked = {
            x: after
            for x, after in positions.items()
            if not self._idle.had_nothing(x.id, after, since=since)
        }
        counts = {x.id: 0 for x in positions.keys() - asked.keys()}
        if asked:
            counts |= await self._feed.lags(asked)

        async def measure(read: FeedRange) -> None:
            worker, changes = pool.workers.get(read.id), counts[read.id]
            if worker is not None and (oldest := worker.delivery.oldest) is not None:
                found = Backlog(changes=changes, oldest_us=oldest.committed_us)
            else:
                found = await with_oldest(self._feed, read, positions[read], changes=changes)
            if read.id in pool.workers:
                pool.workers[read.id].meter.is_behind(changes)
                self._events.lag(read.id, Lag(changes, found.seconds(self._wall())))

        counted = [x for x in positions if x.id in counts]
        await for_each(counted, measure, at_once=_AT_ONCE)

    async def measure_unassigned(self) -> Never:
        """Measure what this host reports for the fleet."""
        while True:
            await asyncio.sleep(self._timing.lag_interval)
            try:
                await self._measure_those(self._due())
            except (FeedError, StoreError) as error:
                self._events.retrying("unassigned lag", error, self._timing.lag_interval)

    def _due(self) -> list[RangeId]:
        unassigned, now = self._events.unassigned, self._clock()
        self._measured = {x: at for x, at in self._measured.items() if x in unassigned}
        every = self._timing.ranges_interval
        return [x for x in unassigned if now - self._measured.get(x, -every) >= every]

    async def _measure_those(self, due: list[RangeId]) -> None:
        """Measure each; then raise the first of what was raised."""
        if not due:
            return
        leases = await self._container.list()
        ranges = await self._feed.ranges()
        backlogs = Backlogs(self._feed, leased={x.range_id for x in leases}, ranges=ranges)
        failed: list[FeedError | StoreError] = []

        async def measure(range_id: RangeId) -> None:
            self._measured[range_id] = self._clock()
            try:
                lease = await self._container.read(range_id)
                if lease is not None and lease.position is not None:
                    behind = await backlogs.behind(lease.range, lease.position)
                    lag = Lag(behind.changes, behind.seconds(self._wall()))
                    self._events.lag(range_id, lag)
            except (FeedError, StoreError) as error:
                failed.append(error)

        await for_each(due, measure, at_once=_UNASSIGNED_AT_ONCE)
        if failed:
            raise failed[0]
