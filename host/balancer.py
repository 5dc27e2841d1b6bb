"""What to do next about leases: a host's view of the fleet, and its line of the plan.

No I/O: it is told what was listed and when, and remembers what has stood still.
"""

from collections.abc import Collection, Sequence

from feeds.feed import RangeId
from leases.expiry import ExpiryWatch, Moment
from leases.lease import HostName, Lease, Member
from leases.plan import Line, assignable, line_of, plan

from .settings import LeaseSettings


class Balancer:
    """One host's view. Times are in seconds, monotonic but for ``Moment.wall``."""

    def __init__(self, me: HostName, settings: LeaseSettings) -> None:
        self._me = me
        self._settings = settings
        limits = {
            "expiration": settings.expiration,
            "max_clock_skew": settings.max_clock_skew,
        }
        self._leases = ExpiryWatch[RangeId](**limits)
        self._members = ExpiryWatch[HostName](**limits)
        self._fleet: frozenset[HostName] | None = None
        self._quiet_since = 0.0
        self._dead: Collection[HostName] = ()

    @property
    def fleet(self) -> frozenset[HostName]:
        """The hosts that were found alive at the last look, and not stopping."""
        return self._fleet or frozenset()

    def to_forget(self, leases: Sequence[Lease], members: Sequence[Member]) -> list[Member]:
        """Pick the records of hosts that are dead and own nothing any more.

        While a dead host's leases have not expired, its record tells that it is dead.
        """
        owners = {x.owner for x in leases}
        return [x for x in members if x.name in self._dead and x.name not in owners]

    def next_expiry(self) -> float | None:
        """Return when something would expire that shows no sign of life until then."""
        expiries = (self._leases.next_expiry(), self._members.next_expiry())
        return min((x for x in expiries if x is not None), default=None)

    def line(
        self,
        leases: Sequence[Lease],
        members: Sequence[Member],
        at: Moment,
        *,
        held: Collection[RangeId],
    ) -> Line:
        """Take in what was listed; return what this host has to do."""
        owned = {x.range_id: x for x in leases if x.owner is not None}
        expired = self._leases.expired(owned, at)
        self._dead = self._members.expired({x.name: x for x in members}, at)
        living = {x.name for x in members if x.name not in self._dead} | {self._me}
        # A host of another kind keeps no record; a lease that moves shows that it lives.
        strangers = {
            x.owner for r, x in owned.items() if x.owner is not None and r not in expired
        } - {x.name for x in members}
        stopping = {x.name for x in members if x.stopping}
        fleet = frozenset((living | strangers) - stopping)
        if fleet != self._fleet:
            self._fleet, self._quiet_since = fleet, at.answered
        line = line_of(
            self._me,
            plan(assignable(leases), fleet),
            leases,
            held=held,
            expired=expired,
            living=fleet,
        )
        quiet = at.answered - self._quiet_since >= self._settings.rebalance_delay
        return line if quiet else Line(acquire=line.acquire)
