"""The ranges that no host of the fleet reads: which, why, and how far they are behind.

A range that is paused, or whose keys others have, or that belongs to a processor of another
kind, has no host that measures it. So that its lag is in the metrics all the same, and once,
the living member with the lowest name reports it for the fleet. Every host finds that from its
own listing: while two listings differ, a lag may be reported twice, or not at all, for some
seconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Never

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, RangeId
from changefeed.host.events import HostEvents, Lag
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet import Fleet
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.timing import Timing
from changefeed.leases.unread import Unread
from changefeed.runtime.clock import Clock
from changefeed.runtime.errors import StoreError
from changefeed.runtime.for_each import for_each

_AT_ONCE = 8


def reporter(fleet: Fleet) -> HostName | None:
    """Return the host that reports for the fleet, if any keeps a record.

    A host that is stopping does not, nor one of another kind, which keeps no record.
    """
    return min(fleet.members.keys() & fleet.alive, default=None)


def unread_ranges(fleet: Fleet, readable: Iterable[Lease]) -> Mapping[RangeId, str]:
    """Return the ranges that no living member reads, and why.

    ``paused``; ``waiting``, as others have its keys; ``foreign``: a processor of another kind
    has it; ``unowned``.
    """
    living = fleet.members.keys() - fleet.dead
    may_begin = {x.range_id for x in readable}
    found: dict[RangeId, str] = {}
    for lease in fleet.leases.values():
        if lease.ended or lease.owner in living:
            continue
        if lease.paused is not None:
            found[lease.range_id] = "paused"
        elif lease.owner is not None:
            found[lease.range_id] = "foreign" if lease.owner in fleet.alive else "unowned"
        else:
            found[lease.range_id] = "unowned" if lease.range_id in may_begin else "waiting"
    return found


class UnreadLags:
    """Measures the ranges that ``events`` lists as unread: one that is new soon, the others
    each time that ranges are looked for, because each costs a read of its lease.
    """

    def __init__(
        self,
        feed: Feed,
        container: LeaseContainer,
        timing: Timing,
        *,
        events: HostEvents,
        clock: Clock,
        wall: Callable[[], float],
    ) -> None:
        self._feed = feed
        self._container = container
        self._timing = timing
        self._events = events
        self._clock = clock
        self._wall = wall
        self._measured: dict[RangeId, float] = {}

    async def run(self) -> Never:
        while True:
            await asyncio.sleep(self._timing.lag_interval)
            try:
                await self._measure(self._due())
            except (FeedError, StoreError) as error:
                self._events.retrying("unread lag", error, self._timing.lag_interval)

    def _due(self) -> list[RangeId]:
        unread, now = self._events.unread, self._clock()
        self._measured = {x: at for x, at in self._measured.items() if x in unread}
        every = self._timing.ranges_interval
        return [x for x in unread if now - self._measured.get(x, -every) >= every]

    async def _measure(self, due: list[RangeId]) -> None:
        """Measure each; then raise the first of what was raised."""
        if not due:
            return
        leases = await self._container.list()
        ranges = await self._feed.ranges()
        unread = Unread(self._feed, leased={x.range_id for x in leases}, ranges=ranges)
        failed: list[FeedError | StoreError] = []

        async def measure(range_id: RangeId) -> None:
            self._measured[range_id] = self._clock()
            try:
                await self._measure_one(unread, range_id)
            except (FeedError, StoreError) as error:
                failed.append(error)

        await for_each(due, measure, at_once=_AT_ONCE)
        if failed:
            raise failed[0]

    async def _measure_one(self, unread: Unread, range_id: RangeId) -> None:
        lease = await self._container.read(range_id)
        if lease is not None and lease.position is not None:
            behind = await unread.behind(lease.range, lease.position)
            lag = Lag(behind.changes, behind.seconds(self._wall()))
            self._events.unread_lag(range_id, lag)
