"""A fleet as its lease container and its feed show it: every lease, and every lag.

Hosts need not run. What only they know is asked from their endpoints, where ``peers`` are
given. How fast a range gets on is what its owner says; where that does not answer, it is what
was checkpointed in the last ten seconds of looking.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from changefeed.feeds.backlog import Backlog, Backlogs, changes_between
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, FeedRange, Position, RangeId
from changefeed.fleet.peers import Peers
from changefeed.fleet.states import FleetListing, fleet_status, problem_of_feed
from changefeed.fleet.status import FleetStatus, Metrics, Problem, Report
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet import FleetWatch, ListedAt
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease
from changefeed.leases.timing import Timing
from changefeed.runtime.calls import for_each, gather_or_cancel

_AT_ONCE = 16
_RATE_OVER = 10.0

_Positions = Mapping[RangeId, Position | None]


class StoreSource:
    """Looks at a fleet from outside. ``feed`` may be missing, with the reason why.

    ``address`` and ``place`` name feed and leases for people. With ``rates`` it measures how
    fast ranges get on, which takes a second look.
    """

    def __init__(
        self,
        container: LeaseContainer,
        feed: Feed | None,
        no_feed: FeedError | None = None,
        *,
        address: str,
        place: str,
        timing: Timing,
        peers: Peers | None = None,
        rates: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.container = container
        self.feed = feed
        self._no_feed = no_feed
        self._address = address
        self._place = place
        self._timing = timing
        self._watch = FleetWatch(timing, by_stamps=True)
        self._peers = peers
        self._with_rates = rates
        self._wall = wall
        self._before: deque[tuple[float, _Positions]] = deque()

    async def look(self, before: FleetStatus | None) -> FleetStatus:
        """Read everything once. Raise ``StoreError`` if the container does not answer."""
        clock = asyncio.get_running_loop().time
        asked = clock()
        members, leases = await gather_or_cancel(
            self.container.members(), self.container.list()
        )
        at = ListedAt(asked=asked, answered=clock(), wall=self._wall())
        reports: Mapping[str, Report] = {}
        if self._peers is not None:
            reports = await self._peers.ask({x.name: x.address for x in members})
        problems = [] if self._no_feed is None else [problem_of_feed(self._no_feed)]
        ranges = await self._ranges(problems)
        record = await self.container.fleet()
        expiration = max(record.expiration, record.before)
        self._watch.judge_by(Timing.of(expiration) if expiration else self._timing)
        fleet = self._watch.take(leases, members, at)
        keymap = KeyMap(leases, root=record.root, ranges=ranges)
        whole = await for_each(keymap.leases.values(), self._whole, at_once=_AT_ONCE)
        backlogs = await self._backlogs(whole, keymap, problems)
        positions = {x.range_id: x.position for x in whole}
        reported = {seen.range for x in reports.values() for seen in x.ranges}
        others = [x for x in whole if x.range_id not in reported]
        rates = await self._measured_rates(others, at.answered)
        listed = FleetListing(
            feed=self._address,
            place=self._place,
            fleet=fleet,
            balance=record.balance,
            leases=whole,
            keymap=keymap,
            metrics={
                name: _metrics(
                    positions.get(name), backlogs.get(name), rates.get(name), at.wall
                )
                for name in {*positions, *backlogs}
            },
            problems=list(dict.fromkeys(problems)),
        )
        return fleet_status(listed, reports, before, now=at.wall)

    async def _ranges(self, problems: list[Problem]) -> Sequence[FeedRange]:
        if self.feed is None:
            return []
        try:
            return await self.feed.ranges()
        except FeedError as error:
            problems.append(problem_of_feed(error))
            return []

    async def _whole(self, listed: Lease) -> Lease:
        stored = await self.container.read(listed.range_id)
        return listed if stored is None else replace(stored, range=listed.range)

    async def _backlogs(
        self, leases: Sequence[Lease], keymap: KeyMap, problems: list[Problem]
    ) -> Mapping[RangeId, Backlog]:
        """Measure what lies behind each lease, and where one that is to come will begin. What
        the feed does not say is left out.
        """
        if self.feed is None:
            return {}
        at = [(x.range, x.position) for x in leases if x.end is None and x.position is not None]
        at += [(x.child.range, x.child.start) for x in keymap.new_leases]
        leased = {*keymap.leases, *(x.id for x, _ in at)}
        measured = Backlogs(self.feed, leased=leased, ranges=keymap.ranges)
        found: dict[RangeId, Backlog] = {}

        async def measure(place: tuple[FeedRange, Position]) -> None:
            try:
                found[place[0].id] = await measured.behind(*place)
            except FeedError as error:
                problems.append(problem_of_feed(error))

        await for_each(at, measure, at_once=_AT_ONCE)
        return found

    async def _measured_rates(
        self, leases: Sequence[Lease], clock: float
    ) -> Mapping[RangeId, float]:
        """Return the changes a second that were checkpointed, in the feed's measure.

        A position cannot be counted, but what lies behind it can: the difference between two is
        what was done. What was not there before, has ended, or was moved back is left out.
        """
        now = {x.range_id: x.position for x in leases}
        self._before.append((clock, now))
        while self._before[0][0] < clock - _RATE_OVER:
            self._before.popleft()
        since, known = self._before[0]
        feed, seconds = self.feed, clock - since
        if feed is None or not self._with_rates or seconds <= 0:
            return {}

        async def done(lease: Lease) -> int | None:
            old, new = known.get(lease.range_id), lease.position
            if old is None or new is None or lease.ended:
                return None
            return 0 if old == new else await changes_between(feed, lease.range, old, new)

        counts = zip(leases, await for_each(leases, done, at_once=_AT_ONCE), strict=True)
        return {
            x.range_id: count / seconds
            for x, count in counts
            if count is not None and count >= 0
        }


def _metrics(
    position: Position | None, behind: Backlog | None, rate: float | None, now: float
) -> Metrics:
    return Metrics(
        position=position,
        lag=None if behind is None else behind.changes,
        lag_seconds=None if behind is None else behind.seconds(now),
        rate=rate,
    )
