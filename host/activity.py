"""What a host did lately, and what it last listed of its fleet, for those who look at it.

It is written where things happen, at the cost of a few assignments, and rates are made of it
once a round of balancing. Nothing here has a timer, and nobody waits for it.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.lease import Lease, Member

_RATE_OVER = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeActivity:
    """``since`` is when this host acquired the range, ``checkpoint_at`` when it last wrote a
    checkpoint of it, both in seconds since 1970; ``position`` is that checkpoint.
    """

    since: float
    position: Position
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
        self.loop_lag = 0.0
        """How late the event loop was when it was last measured, in seconds."""
        self.done = Counter[RangeId]()
        """How many changes observers were done with since the last sample."""
        self._window = self.started_at

    def acquired(self, range_id: RangeId, position: Position) -> None:
        self.ranges[range_id] = RangeActivity(since=self._wall(), position=position)

    def checkpointed(self, range_id: RangeId, position: Position) -> None:
        known = self.ranges.get(range_id)
        if known is not None:
            self.ranges[range_id] = replace(
                known, position=position, checkpoint_at=self._wall()
            )

    def given_up(self, range_id: RangeId) -> None:
        self.ranges.pop(range_id, None)

    def listed(self, leases: Sequence[Lease], members: Sequence[Member]) -> None:
        self.leases, self.members = leases, members

    def sample(self) -> None:
        """Make rates, if the last ones are old enough."""
        now = self._wall()
        seconds = now - self._window
        if 0 <= seconds < _RATE_OVER:
            return
        if seconds > 0:  # else the clock was set back
            self.rates = {x: count / seconds for x, count in self.done.items()}
        self._window = now
        self.done.clear()
