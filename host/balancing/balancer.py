"""What to do next about leases: a host's view of the fleet, and its line of the plan.

No I/O: it is told what was listed and when, and remembers what has stood still and what
this host has asked for.
"""

import enum
from collections.abc import Collection, Sequence

from changefeed.feeds.feed import RangeId
from changefeed.host.settings import LeaseSettings
from changefeed.leases.expiry import ExpiryWatch, Moment
from changefeed.leases.lease import HostName, Lease, Member
from changefeed.leases.plan import Action, actions_for, assignable, plan

_SHORTEST_WAIT = 0.05  # rounding must not make the last moment before an expiry a busy one


class Steal(enum.Enum):
    """How far a steal has come."""

    ASK = "write our name on the lease, and let its owner finish"
    WAIT = "the owner has been asked"
    TAKE = "take it: its owner does not hand over, or has had its time"


class Balancer:
    """One host's view. Times are in seconds, monotonic but for ``Moment.wall``."""

    def __init__(self, me: HostName, settings: LeaseSettings) -> None:
        limits = {
            "expiration": settings.expiration,
            "max_clock_skew": settings.max_clock_skew,
        }
        self._me = me
        self._settings = settings
        self._leases = ExpiryWatch[RangeId](**limits)
        self._members = ExpiryWatch[HostName](**limits)
        self._fleet: frozenset[HostName] | None = None
        self._recorded: frozenset[HostName] = frozenset()
        self._dead: Collection[HostName] = ()
        self._quiet_since = 0.0
        self._quiet = False
        self._handoffs_due = False
        self._asked: dict[RangeId, tuple[int, float]] = {}
        self._looked: float | None = None

    @property
    def fleet(self) -> frozenset[HostName]:
        """The hosts that were found alive at the last look, and not stopping."""
        return self._fleet or frozenset()

    def line(
        self,
        leases: Sequence[Lease],
        members: Sequence[Member],
        at: Moment,
        *,
        reading: Collection[RangeId],
    ) -> list[tuple[Action, Lease]]:
        """Take in what was listed; return what this host has to do, in order."""
        owned = {x.range_id: x for x in leases if x.owner is not None}
        expired = self._leases.expired(owned, at)
        self._dead = self._members.expired({x.name: x for x in members}, at)
        self._recorded = frozenset(x.name for x in members)
        self._see(self._living(owned, expired, members), at)
        assignment = plan(assignable(leases), self.fleet)
        line = actions_for(
            self._me, assignment, leases, reading=reading, expired=expired, living=self.fleet
        )
        self._notice_absence(at)
        stealing = {lease.range_id for action, lease in line if action is Action.STEAL}
        self._asked = {x: at for x, at in self._asked.items() if x in stealing}
        self._handoffs_due = bool(stealing) or any(
            assignment.get(x) not in (None, self._me) for x in reading
        )
        return line if self._quiet else [x for x in line if x[0] is not Action.STEAL]

    def _living(
        self,
        owned: dict[RangeId, Lease],
        expired: Collection[RangeId],
        members: Sequence[Member],
    ) -> frozenset[HostName]:
        """Return who may own leases: whoever lives and is not stopping."""
        living = {x.name for x in members if x.name not in self._dead} | {self._me}
        # A host of another kind keeps no record; a lease that moves shows that it lives.
        foreign_owners = {
            x.owner for r, x in owned.items() if x.owner is not None and r not in expired
        } - self._recorded
        return frozenset((living | foreign_owners) - {x.name for x in members if x.stopping})

    def _notice_absence(self, at: Moment) -> None:
        """Let requests count anew after we were away for so long that we may have seemed
        dead: nobody hands over to the dead, so the owners have not had their time.
        """
        away = self._settings.expiration / 2
        if self._looked is not None and at.answered - self._looked >= away:
            self._asked.clear()
        self._looked = at.answered

    def _see(self, fleet: frozenset[HostName], at: Moment) -> None:
        if fleet != self._fleet:
            self._fleet, self._quiet_since = fleet, at.answered
        self._quiet = at.answered - self._quiet_since >= self._settings.rebalance_delay

    def steal(self, lease: Lease, *, now: float) -> Steal:
        """Decide the next step of a steal; remember since when the request has stood.

        A host that keeps no member record and writes no incarnation is of another kind and
        knows no handoffs. (A record alone may be missing from a torn listing.) An owner
        that was asked and neither hands over nor dies is robbed when it has had the time
        to finish and then as long as a dead one would have had.
        """
        settings = self._settings
        of_our_kind = lease.owner in self._recorded or lease.incarnation is not None
        if settings.max_handoff_time == 0 or not of_our_kind:
            return Steal.TAKE
        if lease.next_owner != self._me:
            self._asked.pop(lease.range_id, None)
            return Steal.ASK
        epoch, since = self._asked.get(lease.range_id, (lease.epoch, now))
        if epoch != lease.epoch:
            epoch, since = lease.epoch, now
        self._asked[lease.range_id] = (epoch, since)
        longest = settings.max_handoff_time + settings.expiration
        return Steal.TAKE if now - since >= longest else Steal.WAIT

    def next_look(self, *, now: float, jitter: float) -> float:
        """Return how many seconds to wait before the next look.

        An interval, times ``jitter``; less if something would expire before, if the time
        to steal comes before, or if leases are about to change hands.
        """
        wait = self._settings.balance_interval * jitter
        moments = [self._leases.next_expiry(), self._members.next_expiry()]
        if self._handoffs_due:
            wait = min(wait, self._settings.handoff_poll)
        if self._handoffs_due and not self._quiet:
            moments.append(self._quiet_since + self._settings.rebalance_delay)
        waits = [wait, *(x - now for x in moments if x is not None)]
        return max(_SHORTEST_WAIT, min(waits))

    def expired_members(
        self, leases: Sequence[Lease], members: Sequence[Member]
    ) -> list[Member]:
        """Pick the records of hosts that are dead and own nothing any more.

        While a dead host's leases have not expired, its record tells that it is dead.
        """
        owners = {x.owner for x in leases}
        return [x for x in members if x.name in self._dead and x.name not in owners]
