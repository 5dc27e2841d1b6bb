"""The plan that all hosts compute alike: who should own what, moving the fewest leases.

Every host lists the same leases and members, computes the same plan, and carries out its
own actions of it. There is no leader, so no death of one costs a round. Hosts whose views
differ for a moment lose a write to each other and plan again; that makes no wrong owner.

With P leases and N members every member gets floor(P/N), and P mod N of them one more.
The extra ones go to those that hold the most already, which makes the number of moves
the smallest possible: each member gives up only what is above its share.

Leases count alike here, whatever their load; ``load_plan`` is the plan for a fleet that
balances by load. A lease that is on its way to another host counts as owned by that host.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from operator import attrgetter

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import HostName, Lease

Assignment = Mapping[RangeId, HostName]


def plan(leases: Iterable[Lease], members: Collection[HostName]) -> Assignment:
    """Assign every lease to a member, as evenly as can be, with the fewest moves.

    ``leases`` are those that may be owned (``KeyMap.readable``), each once. Without members
    nothing is assigned. The answer depends on the values alone, not on their order.
    """
    if not members:
        return {}
    owned: dict[HostName, list[RangeId]] = {name: [] for name in sorted(members)}
    unowned: list[RangeId] = []
    for lease in sorted(leases, key=attrgetter("range_id")):
        holder = holder_of(lease, members)
        (unowned if holder is None else owned[holder]).append(lease.range_id)
    total = len(unowned) + sum(map(len, owned.values()))
    share, extra = divmod(total, len(owned))
    by_load = sorted(owned, key=lambda name: (-len(owned[name]), name))
    room = {name: share + (rank < extra) for rank, name in enumerate(by_load)}
    assert sum(room.values()) == total, f"{room} is no room for {total} leases"
    assigned: dict[RangeId, HostName] = {}
    for name, ranges in owned.items():
        assigned.update(dict.fromkeys(ranges[: room[name]], name))
        unowned.extend(ranges[room[name] :])
    seats = (name for name in owned for _ in range(room[name] - len(owned[name])))
    assigned.update(zip(sorted(unowned), seats, strict=True))
    held = Counter(assigned.values())
    assert held.keys() <= owned.keys(), f"leases for hosts that are no members: {held}"
    assert all(held[name] <= room[name] for name in held), f"{held} is more than {room}"
    assert max(room.values()) - min(room.values()) <= 1, f"{room} is not balanced"
    return assigned


def holder_of(lease: Lease, members: Collection[HostName]) -> HostName | None:
    """Return the member that a lease counts for: the one that asked for it, or its owner."""
    if lease.next_owner in members:
        return lease.next_owner
    return lease.owner if lease.owner in members else None


class Action(enum.Enum):
    """What the plan asks of one host about one lease, in the order of its doing."""

    HAND_OVER = "give it up: it carries our name, this host does not read it, another is to"
    WITHDRAW = "take back our request: the plan has changed"
    ACQUIRE = "take it: it has no owner, or it is ours already"
    ACQUIRE_EXPIRED = "take it: its owner has shown no sign of life"
    STEAL = "ask its owner for it"
    ROB = "take it: its owner does not hand over, or has had its time"


_TAKING = (Action.ACQUIRE, Action.ACQUIRE_EXPIRED, Action.STEAL)


def actions_for(
    me: HostName,
    assignment: Assignment,
    leases: Iterable[Lease],
    *,
    reading: AbstractSet[RangeId],
    expired: AbstractSet[RangeId],
    living: Collection[HostName],
) -> list[tuple[Action, Lease]]:
    """Pick from the plan what ``me`` has to do, in the order of its doing.

    ``reading`` is what ``me`` reads already: the worker of such a lease looks at it by itself
    (``host.worker``). What carries our name without that, from before
    a restart, or from a claim whose answer was lost, or because it was handed over to us,
    is ours to acquire at once. A lease is stolen only from a living owner; a dead one's
    is acquired when it has expired.
    """
    found = []
    for lease in sorted(leases, key=attrgetter("range_id")):
        assigned = assignment.get(lease.range_id)
        if lease.range_id in reading:
            continue
        if assigned == me:
            action = _about_assigned(lease, me, lease.range_id in expired, living)
        else:
            action = _about_others(lease, me, assigned)
        assert action not in _TAKING or assigned == me, (
            f"{me!r} takes lease {lease.range_id!r}, which the plan gives to {assigned!r}"
        )
        if action is not None:
            found.append((action, lease))
    order = list(Action)
    return sorted(found, key=lambda x: order.index(x[0]))


def _about_assigned(
    lease: Lease,
    me: HostName,
    expired: bool,  # noqa: FBT001 - a fact about the lease, not a switch
    living: Collection[HostName],
) -> Action | None:
    if lease.owner is None or lease.owner == me:
        return Action.ACQUIRE
    if expired:
        return Action.ACQUIRE_EXPIRED
    return Action.STEAL if lease.owner in living else None


def _about_others(lease: Lease, me: HostName, assigned: HostName | None) -> Action | None:
    if lease.owner == me and assigned is not None:
        return Action.HAND_OVER
    return Action.WITHDRAW if lease.next_owner == me else None
