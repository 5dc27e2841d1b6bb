"""The plan by load: who should own what where ranges differ, moving few leases seldom.

A pure function of what was listed, like the plan by count, so that all hosts compute the same.
What is there stays while

* the busiest host is within ``TOLERANCE`` of its fair share, and
* no host has less than ``MIN_SHARE`` of its own.

Else leases move: from the busiest host first, one that is enough alone where there is one,
the largest that fits elsewhere where not. A range that alone is more than a fair share leaves
its host no other, and does not count for the fair share of the rest. Where no lease alone
helps, two hosts exchange one for another. What cannot be brought within the tolerance is moved
only for a real gain.

The plan settles: once it is carried out, the same loads move nothing more.

No lease moves that carries the mark ``cooling``: its new owner takes that off after
the cooldown. No more than ``AT_ONCE`` of the leases are on their way at a time.
What has no owner is assigned at once, heaviest first, to the host with most room.

A *load* is busy seconds in each second of reading and observing, smoothed. It is stored in
coarse steps, and only when it has left its step for good: so hosts that list the leases at
different moments plan from the same numbers. What is stored may still be wrong, of another
time or missing. A load that is missing, or none (negative, infinite, not a number), counts as
the mean of those that are known. An idle lease counts a little, so that idle ones are spread.

Limits: one lease is exchanged for one, not for two, so a fleet whose leases are all about as
heavy as a fair share may stay beyond the tolerance. An exchange that gains less than a step
is none: so near, loads are not known.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import itemgetter

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import LOAD_STEP, HostName, Lease
from changefeed.leases.plan import Assignment, holder_of

TOLERANCE = 1.15
MIN_SHARE = 0.5
AT_ONCE = 1 / 8
_GAIN = 0.9  # what stays beyond the tolerance moves for a tenth less, and for no less than that
_ROUNDED = 1 + 1e-9
_IDLE = LOAD_STEP
_ALL_IDLE = 0.1  # what the leases of a host count together for being there, at most
_UNIT = 1_000_000  # loads are added up as whole numbers: sums do not depend on the order


def plan_by_load(
    leases: Iterable[Lease],
    hosts: Mapping[HostName, int | None],
    *,
    tolerance: float = TOLERANCE,
    at_once: float = AT_ONCE,
) -> Assignment:
    """Assign leases to hosts, within ``tolerance`` of fair shares of their load, with no more
    than the share ``at_once`` of the leases on their way, or two, which make an exchange.

    ``leases`` are the assignable ones, each once. ``hosts`` say how many ranges each takes at
    most, ``None`` for any number: what no host has room for is not assigned, unless it has an
    owner. The answer depends on the values alone.
    """
    listed = sorted(leases, key=lambda x: x.range_id)
    if not hosts or not listed:
        return {}
    weights = _weights(listed, len(hosts))
    fair = _fair_share(weights, len(hosts), tolerance)
    draft = _Draft(hosts, fair=fair, tolerance=tolerance)
    unowned, on_their_way = [], 0
    for lease, weight in zip(listed, weights, strict=True):
        holder = holder_of(lease, hosts)
        if holder is None:
            unowned.append((lease.range_id, weight))
        else:
            moving = lease.next_owner == holder != lease.owner
            on_their_way += moving
            draft.put(lease.range_id, weight, holder, movable=not (moving or lease.cooling))
    draft.fill(unowned)
    draft.balance(max(2, ceil(len(listed) * at_once)) - on_their_way)
    assert len(draft.assigned) <= len(listed), "each lease is assigned once at the most"
    assert sum(x.ranges for x in draft.hosts) == len(draft.assigned), (
        f"counted {[x.ranges for x in draft.hosts]}, assigned {len(draft.assigned)}"
    )
    assert sum(x.load for x in draft.hosts) <= sum(weights), "no lease counts twice"
    return draft.assigned


def _weights(leases: Sequence[Lease], hosts: int) -> Sequence[int]:
    loads = [x.known_load for x in leases]
    sure = [x for x in loads if x is not None]
    mean = sum(sure) / len(sure) if sure else 0.0
    idle = min(_IDLE, _ALL_IDLE * hosts / len(leases))
    return [round(((mean if x is None else x) + idle) * _UNIT) for x in loads]


def _fair_share(weights: Sequence[int], hosts: int, tolerance: float) -> float:
    """Return the load that a host should have.

    A lease too heavy for any host takes one for itself: the rest share the others.
    """
    assert all(x >= 0 for x in weights), "known loads are not below nothing"
    rest, sharing = sum(weights), hosts
    for weight in heapq.nlargest(hosts - 1, weights):
        if weight <= tolerance * rest / sharing:
            break
        rest, sharing = rest - weight, sharing - 1
    assert rest >= 0, f"what is shared is what is left: {rest} for {sharing} hosts"
    assert sharing > 0, f"all of {hosts} hosts have a heavy lease alone"
    return rest / sharing


@dataclass(slots=True, kw_only=True)
class _Host:
    """One host in a plan that is being made. ``movable`` are (weight, range), sorted."""

    name: HostName
    max_ranges: int | None
    fair: float
    load: int = 0
    ranges: int = 0
    heaviest_fixed: int = 0
    movable: list[tuple[int, RangeId]] = field(default_factory=list)

    @property
    def room(self) -> float:
        """How much is missing to its fair share; negative where it has more."""
        return self.fair - self.load

    @property
    def is_full(self) -> bool:
        return self.max_ranges is not None and self.ranges >= self.max_ranges

    @property
    def too_many(self) -> bool:
        return self.max_ranges is not None and self.ranges > self.max_ranges

    def most(self, tolerance: float) -> float:
        """Return the load that it may stay at: a heavy range alone is as good as it gets."""
        heaviest_movable = self.movable[-1][0] if self.movable else 0
        return max(tolerance * self.fair, self.heaviest_fixed, heaviest_movable)


class _Draft:
    """An assignment that is being made: who has what by now, and what may move."""

    def __init__(
        self, hosts: Mapping[HostName, int | None], *, fair: float, tolerance: float
    ) -> None:
        self._tolerance = tolerance
        self._hosts = {x: _Host(name=x, max_ranges=hosts[x], fair=fair) for x in sorted(hosts)}
        self._by_room: list[tuple[float, HostName]] = []  # the first that is not out of date
        self.assigned: dict[RangeId, HostName] = {}

    @property
    def hosts(self) -> Collection[_Host]:
        return self._hosts.values()

    def put(self, range_id: RangeId, weight: int, name: HostName, *, movable: bool) -> None:
        assert self.assigned.get(range_id) != name, f"{name!r} is given {range_id!r} twice"
        host = self._hosts[name]
        host.load += weight
        host.ranges += 1
        self.assigned[range_id] = name
        if movable:
            insort(host.movable, (weight, range_id))
        else:
            host.heaviest_fixed = max(host.heaviest_fixed, weight)

    def fill(self, unowned: Iterable[tuple[RangeId, int]]) -> None:
        """Assign what has no owner, heaviest first, to the host with most room."""
        self._by_room = [(-x.room, x.name) for x in self._hosts.values()]
        heapq.heapify(self._by_room)
        for range_id, weight in sorted(unowned, key=lambda x: (-x[1], x[0])):
            receiver = self._roomiest()
            if receiver is None:
                return
            self.put(range_id, weight, receiver.name, movable=True)
            self._note(receiver)

    def balance(self, moves: int) -> None:
        """Move leases between hosts, ``moves`` at most."""
        made = 1
        while made:  # until no step finds any: so the next plan finds none either
            made = 0
            for step in (self._take_from_too_many, self._take_from_busy, self._give_to_idle):
                made += step(moves - made)
            assert made <= max(moves, 0), f"{made} leases moved, and {moves} were allowed"
            moves -= made

    def _take_from_too_many(self, moves: int) -> int:
        made = 0
        for host in self._hosts.values():
            while host.too_many and host.movable and made < moves:
                receiver = self._roomiest()
                if receiver is None:
                    return made
                self._move(0, host, receiver)
                made += 1
        return made

    def _take_from_busy(self, moves: int) -> int:
        made = 0
        busiest = [(-x.load, x.name) for x in self._hosts.values() if self._is_busy(x)]
        heapq.heapify(busiest)
        while busiest and made < moves:
            host = self._hosts[heapq.heappop(busiest)[1]]
            if not self._is_busy(host):
                continue
            before, receiver = host.load, self._roomiest()
            index = self._relief(host, receiver) if receiver else None
            if receiver and index is not None:
                self._move(index, host, receiver)
                made += 1
            elif made + 2 <= moves and (exchange := self._exchange(host)):
                receiver, given, taken = exchange
                self._swap(host, given, receiver, taken)
                made += 2
            else:
                continue  # as good as it gets
            assert receiver.load <= before * _ROUNDED, f"{receiver.name!r} is the busiest now"
            for x in (host, receiver):
                if self._is_busy(x):
                    heapq.heappush(busiest, (-x.load, x.name))
        return made

    def _is_busy(self, host: _Host) -> bool:
        return host.load > host.most(self._tolerance)

    def _relief(self, host: _Host, receiver: _Host) -> int | None:
        """Choose what a busy host gives to the one with most room, as an index of ``movable``:
        the smallest that is enough, else the largest that fits, else what gains most.
        """
        if host is receiver or not host.movable:
            return None
        room = self._tolerance * receiver.fair - receiver.load
        excess = host.load - host.most(self._tolerance)
        enough = bisect_left(host.movable, excess, key=itemgetter(0))
        fitting = bisect_right(host.movable, room, key=itemgetter(0))
        if fitting:
            return min(enough, fitting - 1)
        busy, index = min(
            (max(host.load - x, receiver.load + x), n) for n, (x, _) in enumerate(host.movable)
        )
        return index if busy <= _GAIN * host.load else None

    def _exchange(self, host: _Host) -> tuple[_Host, int, int] | None:
        """Choose another host, what a busy one gives to it and what it takes for that, as
        indices of ``movable``: so that the busier of the two is left with least.
        """
        allowed = max(self._tolerance * host.fair, _GAIN * host.load)
        allowed = min(allowed, host.load - LOAD_STEP * _UNIT)
        mine = {weight: n for n, (weight, _) in enumerate(host.movable)}  # of alike ones, one
        found = list[tuple[int, HostName, int, int]]()
        for other in () if host.is_full else self._hosts.values():
            if other.is_full:
                continue  # its new lease may come before the other has gone
            theirs, even = other.movable, (host.load - other.load) / 2
            for weight, given in mine.items():
                near = bisect_left(theirs, weight - even, key=itemgetter(0))
                for taken in range(max(near - 1, 0), min(near + 1, len(theirs))):
                    more = weight - theirs[taken][0]
                    busier = max(host.load - more, other.load + more)
                    if busier <= allowed:
                        found.append((busier, other.name, given, taken))
        if not found:
            return None
        _, name, given, taken = min(found)
        return self._hosts[name], given, taken

    def _give_to_idle(self, moves: int) -> int:
        made = 0
        givers = [(-x.load, x.name) for x in self._hosts.values() if x.room < 0]
        heapq.heapify(givers)
        for receiver in sorted(self._hosts.values(), key=lambda x: (x.load, x.name)):
            while givers and made < moves and _is_idle(receiver):
                host = self._hosts[heapq.heappop(givers)[1]]
                most = min(receiver.room, host.load - MIN_SHARE * host.fair)
                fitting = bisect_right(host.movable, most, key=itemgetter(0))
                if not fitting:
                    continue  # neither for those that have more already
                self._move(fitting - 1, host, receiver)
                made += 1
                if host.room < 0:
                    heapq.heappush(givers, (-host.load, host.name))
        return made

    def _move(self, index: int, host: _Host, receiver: _Host) -> None:
        assert host is not receiver, f"{host.name!r} gives a lease to itself"
        assert not receiver.is_full, f"{receiver.name!r} has its {receiver.ranges} ranges"
        self._give(self._take(index, host), receiver)
        self._note(host)

    def _swap(self, host: _Host, given: int, other: _Host, taken: int) -> None:
        assert host is not other, f"{host.name!r} exchanges with itself"
        out, back = self._take(given, host), self._take(taken, other)
        self._give(out, other)
        self._give(back, host)

    def _take(self, index: int, host: _Host) -> tuple[int, RangeId]:
        assert 0 <= index < len(host.movable), f"{host.name!r} has no lease {index} to give"
        weight, range_id = host.movable.pop(index)
        host.load -= weight
        host.ranges -= 1
        assert host.load >= 0, f"{host.name!r} gave more than it had: {host.load}"
        assert host.ranges >= len(host.movable), f"{host.name!r} may give what it has not"
        return weight, range_id

    def _give(self, taken: tuple[int, RangeId], receiver: _Host) -> None:
        weight, range_id = taken
        self.put(range_id, weight, receiver.name, movable=True)
        self._note(receiver)

    def _note(self, host: _Host) -> None:
        heapq.heappush(self._by_room, (-host.room, host.name))

    def _roomiest(self) -> _Host | None:
        """Return the host with most room that may be given another range."""
        while self._by_room:
            negative, name = self._by_room[0]
            host = self._hosts[name]
            if -negative == host.room and not host.is_full:
                return host
            heapq.heappop(self._by_room)
        return None


def _is_idle(host: _Host) -> bool:
    return host.load < MIN_SHARE * host.fair and not host.is_full
