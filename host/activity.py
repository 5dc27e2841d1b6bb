"""What a host did lately, and what it last saw of its fleet, for those who look at it.

It is written where things happen, at the cost of a few assignments, and once a round of
balancing a little more is made of it: rates, what moved, and a point of the last hour. Nothing
here has a timer, and nobody waits for it.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from changefeed.feeds.feed import Continuation, RangeId
from changefeed.host.moves import Holding, LeaseMove, holdings, moves_between
from changefeed.leases.lease import HostName, Lease, Member

_RATE_OVER = 10.0
_POINTS = 360
"""An hour of such windows."""
_MOVES = 200


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One moment of the last hour: changes a second, changes behind, and seconds behind."""

    at: float
    rate: float
    lag: int
    late: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeActivity:
    """``since`` is when this host acquired the range, ``checkpoint_at`` when it last wrote a
    checkpoint of it, both in seconds since 1970; ``position`` is that checkpoint.
    """

    since: float
    position: Continuation
    checkpoint_at: float | None = None


class Activity:
    """What one host does. ``wall`` gives seconds since 1970."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self.started_at = wall()
        self.ranges: dict[RangeId, RangeActivity] = {}
        self.rates: Mapping[RangeId, float] = {}
        """Changes a second that observers were done with, over the last ten seconds or so."""
        self.leases: Sequence[Lease] = ()
        """All of the fleet, as last listed."""
        self.members: Sequence[Member] = ()
        self.dead: Collection[HostName] = ()
        """Members whose records do not change any more."""
        self.hour: deque[Point] = deque(maxlen=_POINTS)
        self.moves: deque[LeaseMove] = deque(maxlen=_MOVES)
        """The newest last."""
        self.moved = 0
        """How many moves there were, with those that are forgotten by now."""
        self.loop_lag = 0.0
        """How late the event loop was when it was last measured, in seconds."""
        self._done: Counter[RangeId] = Counter()
        self._window = self.started_at
        self._held: Mapping[str, Holding] | None = None

    def acquired(self, range_id: RangeId, position: Continuation) -> None:
        self.ranges[range_id] = RangeActivity(since=self._wall(), position=position)

    def checkpointed(self, range_id: RangeId, position: Continuation) -> None:
        known = self.ranges.get(range_id)
        if known is not None:
            self.ranges[range_id] = replace(
                known, position=position, checkpoint_at=self._wall()
            )

    def done(self, range_id: RangeId, changes: int) -> None:
        self._done[range_id] += changes

    def given_up(self, range_id: RangeId) -> None:
        self.ranges.pop(range_id, None)

    def listed(
        self,
        leases: Sequence[Lease],
        members: Sequence[Member],
        dead: Collection[HostName] = (),
    ) -> None:
        """Take in what was listed, and find what moved since the listing before."""
        self.leases, self.members, self.dead = leases, members, dead
        held = holdings(leases)
        if self._held is not None:
            news = moves_between(self._held, held, at=self._wall())
            self.moves.extend(news)
            self.moved += len(news)
        self._held = held

    def sample(self, lag: int, late: float | None) -> None:
        """Make rates, and a point of the hour, if the last ones are old enough."""
        now = self._wall()
        seconds = now - self._window
        if 0 <= seconds < _RATE_OVER:
            return
        if seconds > 0:  # else the clock was set back
            self.rates = {x: count / seconds for x, count in self._done.items()}
            rate = self._done.total() / seconds
            self.hour.append(Point(at=now, rate=round(rate, 2), lag=lag, late=late))
        self._window = now
        self._done.clear()

    def newest_moves(self, most: int) -> list[LeaseMove]:
        """Return them, the newest first."""
        return list(islice(reversed(self.moves), most))
