"""What one host is to do about the leases of its fleet, as one listing shows them.

A pure function: ``decide`` takes what was listed, what the host reads and remembers, and what
the feed has; it returns what to do, and what to remember. All hosts compute the same plan of
it, and each does its own part.

A listing may be torn. So what is created, deleted or owned for the first time has to be so in
two listings in a row, of which the later one is whole. A lease that was deleted by hand is
created again by its owner (``OwnedLease``); the others leave it to the owner for as long as a
dead one would have kept it.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.fleet import Fleet
from changefeed.leases.hot_ranges import hot_ranges
from changefeed.leases.keymap import KeyMap, NewLease
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.load_plan import plan_by_load
from changefeed.leases.plan import Action, Assignment, actions_for, plan
from changefeed.leases.timing import FleetRules

_MAX_REST = 16  # balance intervals
_MIN_WAIT = 0.05  # rounding must not make the last moment before an expiry a busy one

_Due = TypeVar("_Due", Lease, NewLease)
Fact = tuple[Hashable, ...]
"""What a listing shows, or calls for: a word, and what it is about."""
Taken = tuple[int, float]
"""How often a lease was taken from a processor of another kind, and when it was last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRanges:
    """The ranges that the feed had when it was asked last, at ``asked`` on our clock.

    Where ``inherits``, positions are handed on from range to range, so that none is needed for
    its lease.
    """

    listed: Sequence[FeedRange] = ()
    asked: float = -inf
    inherits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """This host: what it reads, and what it remembers of earlier listings. Times are in
    seconds, on its clock.

    ``last`` is the fleet as it was listed before, ``since`` what that listing showed, and since
    when; ``limits`` are how many ranges hosts take at most, as they said last.
    """

    name: HostName
    reading: AbstractSet[RangeId] = frozenset()
    last: Fleet | None = None
    limits: Mapping[HostName, int | None] = field(default_factory=dict)
    taken: Mapping[RangeId, Taken] = field(default_factory=dict)
    since: Mapping[Fact, float] = field(default_factory=dict)

    def with_steal(self, lease: Lease, fleet: Fleet, *, now: float) -> "HostView":
        """Remember that a lease was taken, as it was listed, from its living owner."""
        if lease.owner not in fleet.foreign:
            return self
        times, _ = self.taken.get(lease.range_id, (0, now))
        return replace(self, taken={**self.taken, lease.range_id: (times + 1, now)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``steps`` are what to do about leases that are there, in this order; ``new_leases`` and
    ``gaps`` are those to create, the latter without a position, ``deletes`` those to delete,
    and why.

    ``begins`` says that there are no leases yet, ``asks`` that the feed has more to say than
    it had, and ``splits`` into how many sub-ranges to split which range. ``readable`` are the
    leases that a host may own. ``again`` says whether to list all again at once; else the next
    listing is due in ``interval`` seconds, or at one of ``moments``.
    """

    steps: Sequence[tuple[Action, Lease]]
    new_leases: Sequence[NewLease]
    gaps: Sequence[Lease]
    deletes: Sequence[tuple[Lease, str]]
    begins: bool
    asks: bool
    splits: Mapping[RangeId, int]
    readable: Sequence[Lease]
    again: bool
    interval: float
    moments: Sequence[float]
    own: HostView

    def wait(self, *, now: float, jitter: float) -> float:
        """Return how many seconds to wait before the next listing. ``jitter`` spreads the
        listings of hosts.
        """
        assert jitter > 0, f"{jitter} intervals from now there is nothing to list"
        longest = max(_MIN_WAIT, self.interval * jitter)
        return max(_MIN_WAIT, min(longest, *(x - now for x in self.moments), inf))


def decide(
    fleet: Fleet,
    keymap: KeyMap,
    own: HostView,
    ranges: FeedRanges,
    rules: FleetRules,
    *,
    handoff: float,
) -> Decision:
    """See the module. ``keymap`` is of the leases of ``fleet``, and of ``ranges``. An owner
    that is asked for a lease has ``handoff`` seconds to finish; with 0 it is not asked.
    """
    timing, now, last = rules.shown, fleet.at.answered, own.last
    assert last is None or last.at.answered <= now, f"{fleet.at} is before {last.at}"
    before, away = own.since, 0.0 if last is None else now - last.at.answered
    if away >= timing.expiration / 2:
        # We may have seemed dead, and owners hand over to no dead host: they had no time.
        before = {x: since for x, since in before.items() if x[0] != "asked"}
    memory = _Memory(before, now)
    quiet_since = memory.since("alive", fleet.alive)
    quiet = now - quiet_since >= timing.rebalance_delay
    # A torn listing lacks the record of a host that has one.
    known = {**own.limits, **{x.name: x.max_ranges for x in fleet.members.values()}}
    limits = {x: known.get(x) for x in fleet.alive}

    listed, empty = keymap.readable(), not fleet.leases
    begins = empty and last is not None and not last.leases
    readable = [x for x in listed if x.epoch]
    readable += memory.due("readable", (x for x in listed if not x.epoch))
    assert not any(x.ended or x.paused for x in readable), "nobody may own these"
    assignment = _assignment(readable, fleet, limits, rules.balance)
    planned = actions_for(
        own.name,
        assignment,
        fleet.leases.values(),
        reading=own.reading,
        expired=fleet.expired,
        living=fleet.alive,
    )
    steals = _Steals(fleet, own, rules, handoff, memory, quiet=quiet)
    steps = [
        (step, lease)
        for action, lease in planned
        if (step := steals.step(action, lease)) is not None
    ]
    moving = steals.moving or any(
        assignment.get(x) not in (None, own.name) for x in own.reading
    )
    if ranges.asked == -inf:
        keymap = KeyMap(())  # the feed was not asked yet: nothing is known
    # Its owner may create a deleted lease again, until it has expired.
    patience = rules.judged.expiration
    new = memory.due("new", (x for x in keymap.new_leases if not x.kept_back))
    new += memory.due("new", (x for x in keymap.new_leases if x.kept_back), patience)
    gaps = memory.due("gap", (Lease(range=x) for x in keymap.ranges_for_gaps()), patience)
    # Where positions are handed on, what is missing shows by its keys alone.
    finished = memory.due(
        "finished", keymap.finished(() if ranges.inherits else {x.id for x in ranges.listed})
    )
    gone = [x for x in finished if ranges.asked >= memory.since("finished", x.range_id)]
    stale = memory.due("stale", keymap.stale())
    expiries = [] if fleet.next_expiry is None else [fleet.next_expiry]
    quiet_at = [quiet_since + timing.rebalance_delay] if moving and not quiet else []
    return Decision(
        steps=steps,
        new_leases=new,
        gaps=gaps,
        deletes=[(x, "its children go on") for x in gone]
        + [(x, "its keys have gone to other ranges") for x in stale],
        begins=begins,
        asks=bool(new) or len(gone) < len(finished),
        splits=_splits(fleet, ranges, rules.balance) if quiet else {},
        readable=readable,
        again=memory.is_unsure or (empty and not begins),
        interval=min(timing.balance_interval, timing.handoff_poll)
        if moving
        else timing.balance_interval,
        moments=[*expiries, *quiet_at, *memory.moments],
        own=replace(own, last=fleet, limits=limits, taken=steals.taken, since=memory.facts),
    )


def _assignment(
    readable: Sequence[Lease],
    fleet: Fleet,
    limits: Mapping[HostName, int | None],
    balance: str,
) -> Assignment:
    """A processor of another kind would undo what others move by load."""
    if balance != "count" and fleet.foreign.isdisjoint(fleet.alive):
        return plan_by_load(readable, limits)
    return plan(readable, fleet.alive)


def _splits(fleet: Fleet, ranges: FeedRanges, balance: str) -> Mapping[RangeId, int]:
    """A processor of another kind would read on what was split."""
    if balance != "split" or fleet.shared:
        return {}
    return hot_ranges(fleet.leases.values(), fleet.alive, ranges.listed)


class _Memory:
    """Since when listings show a fact, each of them: one that does not has it forgotten."""

    def __init__(self, before: Mapping[Fact, float], now: float) -> None:
        self._before = before
        self._now = now
        self.facts = dict[Fact, float]()
        self.is_unsure = False
        """Whether the next listing is to tell more."""
        self.moments = list[float]()
        """When it has patience no longer."""

    def since(self, *fact: Hashable) -> float:
        """Keep in mind that it is so; return since when."""
        found = self.facts[fact] = self._before.get(fact, self._now)
        assert found <= self._now, f"{fact} is so since {found}, in future"
        return found

    def due(self, what: str, found: Iterable[_Due], patience: float = 0.0) -> list[_Due]:
        """Return what the listing before has shown, too, and all for so many seconds."""
        due = list[_Due]()
        for x in found:
            since = self.since(what, x.range_id)
            if (what, x.range_id) not in self._before:
                self.is_unsure = True
            elif self._now < since + patience:
                self.moments.append(since + patience)
            else:
                due.append(x)
        return due


class _Steals:
    """How far the steals of one host have come.

    A lease is asked for once membership has been quiet. From an owner that was asked and
    neither hands over nor dies, it is taken when that is as late as a dead one. A processor of
    another kind knows no requests; it may write over what was taken from it, so it has its
    lease for twice as long after each time.
    """

    def __init__(
        self,
        fleet: Fleet,
        own: HostView,
        rules: FleetRules,
        handoff: float,
        memory: _Memory,
        *,
        quiet: bool,
    ) -> None:
        self._fleet = fleet
        self._me = own.name
        self._handoff = handoff
        self._longest = handoff + rules.judged.expiration
        self._interval = rules.shown.balance_interval
        self._quiet = quiet
        self._now = now = fleet.at.answered
        self._memory = memory
        # After so long a lease may have been taken from us as well.
        lasted = 2 * _MAX_REST * self._interval
        self.taken = {x: y for x, y in own.taken.items() if now - y[1] < lasted}
        self.moving = False
        """Whether a lease is to come from another host."""

    def step(self, action: Action, lease: Lease) -> Action | None:
        """Return what to do now of what is planned, if anything."""
        if action is not Action.STEAL:
            return action
        assert lease.owner != self._me, f"{self._me!r} steals {lease.range_id!r} from itself"
        if self._is_left_alone(lease):
            return None
        self.moving = True
        step = self._of(lease)
        return step if self._quiet else None

    def _of(self, lease: Lease) -> Action | None:
        if self._handoff == 0 or lease.owner in self._fleet.foreign:
            return Action.ROB
        if lease.next_owner != self._me:
            return Action.STEAL
        has_had = self._now - self._memory.since("asked", lease.range_id, lease.epoch)
        return Action.ROB if has_had >= self._longest else None

    def _is_left_alone(self, lease: Lease) -> bool:
        times, at = self.taken.get(lease.range_id, (0, -inf))
        intervals = min(2 ** min(times, _MAX_REST), _MAX_REST)
        rests = self._now < at + intervals * self._interval
        return rests and lease.owner in self._fleet.foreign
