"""What to do next about leases: a host's view of the fleet, and its actions of the plan.

No I/O: ``observe`` takes in what was listed and when, remembers what has stood still, and
returns a view; ``actions`` picks from the view, and decides nothing from memory.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.balancing.sharing import Sharing
from changefeed.host.fleet_settings import limits_by_load, limits_to_split
from changefeed.host.settings import LeaseSettings
from changefeed.leases.expiry import ExpiryWatch, Moment
from changefeed.leases.hot_ranges import hot_ranges
from changefeed.leases.lease import HostName, Lease, Member
from changefeed.leases.life import Heartbeats
from changefeed.leases.load_plan import plan_by_load
from changefeed.leases.plan import Action, Assignment, actions_for, plan

_LONGEST_REST = 16  # balance intervals
_SHORTEST_WAIT = 0.05  # rounding must not make the last moment before an expiry a busy one


class Steal(enum.Enum):
    """How far a steal has come."""

    REQUEST = "write our name on the lease, and let its owner finish"
    WAIT = "the owner has been asked, or has undone the last steal"
    TAKE = "take it: its owner does not hand over, or has had its time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What is stored, and what this host reads: one answer of the container. ``readable`` are
    the leases that hosts may own; ``ranges`` are those that the feed had when it was asked
    last.
    """

    leases: Sequence[Lease]
    readable: Sequence[Lease]
    members: Sequence[Member]
    reading: Collection[RangeId]
    ranges: Collection[FeedRange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one host made of one listing.

    ``fleet`` are the hosts that are alive and not stopping, ``dead`` those whose record
    no longer changes. ``planned`` is all that the plan wants of this host, in order; ``quiet``
    says whether membership has been quiet for long enough to steal; ``renew_each``, whether
    some who share the leases do not go by the heartbeats of their owners; ``to_split``, which
    ranges are too much for one host, and into how many parts their owners are to split them.
    """

    listing: Listing
    fleet: frozenset[HostName]
    dead: Collection[HostName]
    planned: Sequence[tuple[Action, Lease]]
    quiet: bool
    renew_each: bool
    to_split: Mapping[RangeId, int]


def actions(view: View) -> list[tuple[Action, Lease]]:
    """Return what to do now, in order: what is planned, but steals once it is quiet."""
    return [x for x in view.planned if view.quiet or x[0] is not Action.STEAL]


def expired_members(view: View) -> list[Member]:
    """Pick the records of hosts that are dead and own nothing any more.

    While a dead host's leases have not expired, its record says that it is dead.
    """
    owners = {x.owner for x in view.listing.leases}
    return [x for x in view.listing.members if x.name in view.dead and x.name not in owners]


class Balancer:
    """One host's memory. Times are in seconds, on our clock but for ``Moment.wall``."""

    def __init__(self, me: HostName, settings: LeaseSettings) -> None:
        limits = {
            "expiration": settings.expiration,
            "max_clock_skew": settings.max_clock_skew,
            "renew_interval": settings.renew_interval,
        }
        self._me = me
        self._settings = settings
        self._leases = ExpiryWatch[RangeId](**limits)
        self._heartbeats = Heartbeats()
        self._sharing = Sharing(settings)
        self._members = ExpiryWatch[HostName](**limits)
        self._fleet: frozenset[HostName] | None = None
        self._recorded: frozenset[HostName] = frozenset()
        self._said: dict[HostName, str] = {}
        self._quiet_since = 0.0
        self._quiet = False
        self._handoffs_due = False
        self._requested: dict[RangeId, tuple[int, float]] = {}
        self._stolen: dict[RangeId, tuple[int, float]] = {}
        self._listed_at: float | None = None

    @property
    def fleet(self) -> frozenset[HostName]:
        """The hosts that were alive in the last listing, and not stopping."""
        return self._fleet or frozenset()

    @property
    def renew_each(self) -> bool:
        """Whether each lease must be renewed, by what was listed last."""
        return self._sharing.renew_each

    def observe(self, listing: Listing, at: Moment) -> View:
        """Take in a listing; return what it means, and what the plan wants of this host."""
        leases, members = listing.leases, listing.members
        owned = {x.range_id: x for x in leases if x.owner is not None}
        expired = self._leases.expired(self._heartbeats.lives(leases, members), at)
        dead = self._members.expired({x.name: x for x in members}, at)
        self._recorded = frozenset(x.name for x in members)
        fleet = self._alive(owned, expired, members, dead)
        self._observe_fleet(fleet, at)
        self._sharing.observe(owned.values(), members)
        assignment = self._assign(listing.readable, fleet, members)
        reading = listing.reading
        planned = actions_for(
            self._me, assignment, leases, reading=reading, expired=expired, living=fleet
        )
        self._forget_requests_if_away(at)
        steals = [lease for action, lease in planned if action is Action.STEAL]
        stealing = {x.range_id for x in steals}
        self._requested = {x: at for x, at in self._requested.items() if x in stealing}
        self._forget_steals(at.answered)
        moving = [x for x in steals if not self._is_left_alone(x, at.answered)]
        self._handoffs_due = bool(moving) or any(
            assignment.get(x) not in (None, self._me) for x in reading
        )
        assert fleet.isdisjoint({*dead} - {self._me}), (
            f"{fleet} and {dead} have hosts in common"
        )
        return View(
            listing=listing,
            fleet=fleet,
            dead=dead,
            planned=planned,
            quiet=self._quiet,
            renew_each=self.renew_each,
            to_split=self._hot(listing, fleet),
        )

    def _hot(self, listing: Listing, fleet: Collection[HostName]) -> Mapping[RangeId, int]:
        """A processor of another kind would read on what was split."""
        if not self._settings.split_hot or self._sharing.with_others or not self._quiet:
            return {}
        limits = limits_to_split(fleet, self._said)
        return hot_ranges(listing.leases, limits, listing.ranges)

    def _assign(
        self, leases: Sequence[Lease], fleet: Collection[HostName], members: Sequence[Member]
    ) -> Assignment:
        by_load = self._settings.balance == "load"
        # A torn listing lacks the record of a host that has one.
        self._said |= {x.name: x.settings for x in members}
        self._said = {x: self._said[x] for x in fleet if x in self._said}
        limits = limits_by_load(fleet, self._said) if by_load else None
        if limits is None:
            return plan(leases, fleet)
        return plan_by_load(leases, limits)

    def _alive(
        self,
        owned: dict[RangeId, Lease],
        expired: Collection[RangeId],
        members: Sequence[Member],
        dead: Collection[HostName],
    ) -> frozenset[HostName]:
        """Return the hosts that may own leases: those that are alive and not stopping."""
        living = {x.name for x in members if x.name not in dead} | {self._me}
        # A host of another kind keeps no record; a lease that moves shows that it lives.
        foreign_owners = {
            x.owner for r, x in owned.items() if x.owner is not None and r not in expired
        } - self._recorded
        return frozenset((living | foreign_owners) - {x.name for x in members if x.stopping})

    def _forget_requests_if_away(self, at: Moment) -> None:
        """Let requests count from now after we were away for so long that we may have seemed
        dead: owners hand over to no dead host, so they have not had their time.
        """
        away = self._settings.expiration / 2
        assert self._listed_at is None or self._listed_at <= at.answered, (
            f"a listing of {at}, after one of {self._listed_at}"
        )
        if self._listed_at is not None and at.answered - self._listed_at >= away:
            self._requested.clear()
        self._listed_at = at.answered

    def _observe_fleet(self, fleet: frozenset[HostName], at: Moment) -> None:
        if fleet != self._fleet:
            self._fleet, self._quiet_since = fleet, at.answered
        assert self._quiet_since <= at.answered, (
            f"the fleet has changed at {self._quiet_since}, which is yet to come: {at}"
        )
        self._quiet = at.answered - self._quiet_since >= self._settings.rebalance_delay

    def steal(self, lease: Lease, *, now: float) -> Steal:
        """Decide the next step of a steal; remember since when the request has been there.

        A host that keeps no member record is of another kind and knows no handoffs. (A record
        alone may be missing from a torn listing.) It may write over what was stolen from it, so
        it has twice as long after each steal. From an owner that was asked and neither hands
        over nor dies, the lease is force-stolen after ``longest_handoff``.
        """
        settings = self._settings
        assert lease.owner is not None, f"{lease.range_id!r} has no owner, and is not stolen"
        assert lease.owner != self._me, f"{self._me!r} steals {lease.range_id!r} from itself"
        if self._is_left_alone(lease, now):
            return Steal.WAIT
        if settings.max_handoff_time == 0 or not self._is_of_our_kind(lease):
            return Steal.TAKE
        if lease.next_owner != self._me:
            self._requested.pop(lease.range_id, None)
            return Steal.REQUEST
        epoch, since = self._requested.get(lease.range_id, (lease.epoch, now))
        if epoch != lease.epoch:
            epoch, since = lease.epoch, now
        assert since <= now, f"{lease.range_id!r} was asked for at {since}, and it is {now}"
        self._requested[lease.range_id] = (epoch, since)
        return Steal.TAKE if now - since >= settings.longest_handoff else Steal.WAIT

    def stolen(self, lease: Lease, *, now: float) -> None:
        """Remember that a lease was taken, as it was listed, from its living owner."""
        if not self._is_of_our_kind(lease):
            times, _ = self._stolen.get(lease.range_id, (0, now))
            self._stolen[lease.range_id] = (times + 1, now)

    def _is_of_our_kind(self, lease: Lease) -> bool:
        return lease.owner in self._recorded or lease.has_owner_of_ours

    def _is_left_alone(self, lease: Lease, now: float) -> bool:
        """Whether a host of another kind has it again, and it was stolen not long ago."""
        times, at = self._stolen.get(lease.range_id, (0, -inf))
        intervals = min(2 ** min(times, _LONGEST_REST), _LONGEST_REST)
        rests = now < at + intervals * self._settings.balance_interval
        return rests and not self._is_of_our_kind(lease)

    def _forget_steals(self, now: float) -> None:
        """Forget the steals that have lasted: the lease might have been stolen again since."""
        lasted = 2 * _LONGEST_REST * self._settings.balance_interval
        self._stolen = {x: y for x, y in self._stolen.items() if now - y[1] < lasted}

    def next_listing(self, *, now: float, jitter: float) -> float:
        """Return how many seconds to wait before the next listing.

        An interval, times ``jitter``; less if something would expire before, if the time
        to steal comes before, or if leases are about to change hands.
        """
        assert jitter > 0, f"{jitter} intervals from now there is nothing to list"
        wait = self._settings.balance_interval * jitter
        moments = [self._leases.next_expiry(), self._members.next_expiry()]
        if self._handoffs_due:
            wait = min(wait, self._settings.handoff_poll)
        if self._handoffs_due and not self._quiet:
            moments.append(self._quiet_since + self._settings.rebalance_delay)
        waits = [wait, *(x - now for x in moments if x is not None)]
        longest = max(_SHORTEST_WAIT, wait)
        found = max(_SHORTEST_WAIT, min(waits))
        assert found <= longest, f"the next listing is {found} s away, and due in {longest}"
        return found
