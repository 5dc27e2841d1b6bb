"""What to do next about leases: a host's view of the fleet, and its actions of the plan.

No I/O: ``observe`` takes in what was listed and when, remembers what has stood still, and
returns a view; ``actions`` picks from the view, and decides nothing from memory.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.fleet_settings import limits_by_load, limits_to_split
from changefeed.host.settings import LeaseSettings
from changefeed.leases.expiry import Moment
from changefeed.leases.fleet import Fleet, FleetWatch
from changefeed.leases.hot_ranges import hot_ranges
from changefeed.leases.lease import HostName, Lease, Member
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
    members: Collection[Member]
    reading: Collection[RangeId]
    ranges: Collection[FeedRange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one host made of one listing.

    ``planned`` is all that the plan wants of this host, in order; ``quiet`` says whether
    membership has been quiet for long enough to steal; ``to_split``, which ranges are too much
    for one host, and into how many parts their owners are to split them.
    """

    listed: Fleet
    planned: Sequence[tuple[Action, Lease]]
    quiet: bool
    to_split: Mapping[RangeId, int]


def actions(view: View) -> list[tuple[Action, Lease]]:
    """Return what to do now, in order: what is planned, but steals once it is quiet."""
    return [x for x in view.planned if view.quiet or x[0] is not Action.STEAL]


class Balancer:
    """One host's memory. Times are in seconds, on our clock but for ``Moment.wall``."""

    def __init__(self, me: HostName, settings: LeaseSettings) -> None:
        self._me = me
        self._settings = settings
        self._watch = FleetWatch(
            expiration=settings.expiration,
            max_clock_skew=settings.timing.clock_skew,
            renew_interval=settings.timing.renew_interval,
            me=me,
        )
        self._listed: Fleet | None = None
        self._fleet: frozenset[HostName] | None = None
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

    def observe(self, listing: Listing, at: Moment) -> View:
        """Take in a listing; return what it means, and what the plan wants of this host."""
        listed = self._listed = self._watch.take(listing.leases, listing.members, at)
        leases, fleet = listed.leases.values(), listed.alive
        self._observe_fleet(fleet, at)
        assignment = self._assign(listing.readable, fleet, listed.members.values())
        reading = listing.reading
        planned = actions_for(
            self._me, assignment, leases, reading=reading, expired=listed.expired, living=fleet
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
        return View(
            listed=listed,
            planned=planned,
            quiet=self._quiet,
            to_split=self._hot(listing, listed),
        )

    def _hot(self, listing: Listing, listed: Fleet) -> Mapping[RangeId, int]:
        """A processor of another kind would read on what was split."""
        if not self._settings.split_hot or listed.shared or not self._quiet:
            return {}
        limits = limits_to_split(listed.alive, self._said)
        return hot_ranges(listed.leases.values(), limits, listing.ranges)

    def _assign(
        self, leases: Sequence[Lease], fleet: Collection[HostName], members: Iterable[Member]
    ) -> Assignment:
        by_load = self._settings.balance == "load"
        # A torn listing lacks the record of a host that has one.
        self._said |= {x.name: x.settings for x in members}
        self._said = {x: self._said[x] for x in fleet if x in self._said}
        limits = limits_by_load(fleet, self._said) if by_load else None
        if limits is None:
            return plan(leases, fleet)
        return plan_by_load(leases, limits)

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
        self._quiet = at.answered - self._quiet_since >= self._settings.timing.rebalance_delay

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
        if settings.max_handoff_time == 0 or self._is_foreign(lease):
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
        if self._is_foreign(lease):
            times, _ = self._stolen.get(lease.range_id, (0, now))
            self._stolen[lease.range_id] = (times + 1, now)

    def _is_foreign(self, lease: Lease) -> bool:
        return self._listed is not None and self._listed.is_foreign(lease)

    def _is_left_alone(self, lease: Lease, now: float) -> bool:
        """Whether a host of another kind has it again, and it was stolen not long ago."""
        times, at = self._stolen.get(lease.range_id, (0, -inf))
        intervals = min(2 ** min(times, _LONGEST_REST), _LONGEST_REST)
        rests = now < at + intervals * self._settings.timing.balance_interval
        return rests and self._is_foreign(lease)

    def _forget_steals(self, now: float) -> None:
        """Forget the steals that have lasted: the lease might have been stolen again since."""
        lasted = 2 * _LONGEST_REST * self._settings.timing.balance_interval
        self._stolen = {x: y for x, y in self._stolen.items() if now - y[1] < lasted}

    def next_listing(self, *, now: float, jitter: float) -> float:
        """Return how many seconds to wait before the next listing.

        An interval, times ``jitter``; less if something would expire before, if the time
        to steal comes before, or if leases are about to change hands.
        """
        assert jitter > 0, f"{jitter} intervals from now there is nothing to list"
        wait = self._settings.timing.balance_interval * jitter
        moments = [] if self._listed is None else [self._listed.next_expiry]
        if self._handoffs_due:
            wait = min(wait, self._settings.timing.handoff_poll)
        if self._handoffs_due and not self._quiet:
            moments.append(self._quiet_since + self._settings.timing.rebalance_delay)
        waits = [wait, *(x - now for x in moments if x is not None)]
        longest = max(_SHORTEST_WAIT, wait)
        found = max(_SHORTEST_WAIT, min(waits))
        assert found <= longest, f"the next listing is {found} s away, and due in {longest}"
        return found
