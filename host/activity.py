"""What a host did lately, how its ranges get on, as far as it has seen itself, and what it last
listed of its fleet: for those who look at it, and for the leases of its ranges.

It is written where things happen, at the cost of a few assignments, and rates are made of it
once a round of balancing. Nothing here has a timer, and nobody waits for it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace
from opentelemetry.metrics import Observation

from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.fleet import NOTHING_LISTED
from changefeed.leases.health import NOTHING_KNOWN, RangeHealth
from changefeed.leases.lease import Lease

_RATE_OVER = 10.0


@dataclass(slots=True, kw_only=True)
class RangeActivity:
    """``since`` is when this host acquired the range, ``checkpoint_at`` when it last wrote a
    checkpoint of it, both in seconds since 1970; ``position`` is that checkpoint. Observers
    were done with ``done`` changes since the last sample, and before it with ``rate`` a second.
    """

    since: float
    position: Position
    health: RangeHealth = NOTHING_KNOWN
    checkpoint_at: float | None = None
    done: int = 0
    rate: float = 0.0


class Activity:
    """What one host does. ``wall`` gives seconds since 1970."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self.wall = wall
        self.started_at = wall()
        self.ranges: dict[RangeId, RangeActivity] = {}
        """Those that are owned."""
        self.fleet = NOTHING_LISTED
        """As last listed."""
        self.loop_lag = 0.0
        """How late the event loop was when it was last measured, in seconds."""
        self._window = self.started_at

    def sample(self) -> None:
        """Make rates, if the last ones are old enough."""
        now = self.wall()
        seconds = now - self._window
        if 0 <= seconds < _RATE_OVER:
            return
        for x in self.ranges.values():
            if seconds > 0:  # else the clock was set back
                x.rate = x.done / seconds
            x.done = 0
        self._window = now

    # one range

    def acquired(self, lease: Lease, position: Position) -> None:
        """Go on from what the lease says: what failed for its former owner has not got on. It
        shows which keys wait when they are read.
        """
        health = replace(lease.health, waiting=0, oldest=None)
        self.ranges[lease.range_id] = RangeActivity(
            since=self.wall(), position=position, health=health
        )

    def of(self, range_id: RangeId) -> RangeActivity:
        """Return what is known of a range, to be changed in place: to no effect if this host
        does not own it, or no more.
        """
        return self.ranges.get(range_id) or RangeActivity(since=0.0, position=Position(""))

    def given_up(self, range_id: RangeId) -> None:
        self.ranges.pop(range_id, None)

    def failed(self, range_id: RangeId, error: str) -> None:
        known = self.of(range_id)
        known.health = known.health.failed(self.wall(), error)

    def wall_time_of(self, moment: float) -> float:
        """Return when a moment of the loop's clock is, in seconds since 1970."""
        return round(self.wall() + moment - asyncio.get_running_loop().time(), 1)

    # metrics, which are read in another thread

    def read_failing(self) -> list[Observation]:
        ranges = list(self.ranges.items())
        return [Observation(int(x.health.has_problem), {"range": name}) for name, x in ranges]

    def read_waiting(self) -> Iterator[Observation]:
        for name, known in list(self.ranges.items()):
            health = known.health
            is_outage = health.oldest is not None and health.oldest.next_try is None
            why = "outage" if is_outage else "failed"
            for reason in ("failed", "outage"):
                keys = health.waiting if reason == why else 0
                yield Observation(keys, {"range": name, "reason": reason})
