"""The plan that all hosts compute alike: who should own what, moving the fewest leases.

Every host lists the same leases and members, computes the same plan, and carries out its
own line of it. Nobody leads, so nobody's death costs a round. Hosts whose views differ
for a moment lose a write to each other and plan again; a wrong owner cannot come of it.

With P leases and N members every member gets floor(P/N), and P mod N of them one more.
The extra ones go to those that hold the most already, which makes the number of moves
the smallest possible: each member gives up only what is above its share.

Limits: leases count alike, whatever their load. A lease that is on its way to another
host counts as held by that host.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from feeds.feed import RangeId

from .lease import HostName, Lease

Assignment = Mapping[RangeId, HostName]


def assignable(leases: Iterable[Lease]) -> list[Lease]:
    """Leave out what nobody may own now: ended ranges, and those whose parents are not.

    A parent without a lease was finished and forgotten long ago.
    """
    leases = list(leases)
    unfinished = {x.range_id for x in leases if not x.ended}
    return [x for x in leases if not x.ended and unfinished.isdisjoint(x.range.parents)]


def plan(leases: Iterable[Lease], members: Collection[HostName]) -> Assignment:
    """Assign every lease to a member, as evenly as can be, with the fewest moves.

    ``leases`` are the assignable ones. Without members nothing is assigned. The answer
    depends on the values alone, not on their order.
    """
    if not members:
        return {}
    held: dict[HostName, list[RangeId]] = {name: [] for name in sorted(members)}
    unheld: list[RangeId] = []
    for lease in sorted(leases, key=lambda x: x.range_id):
        holder = _holder(lease, members)
        (unheld if holder is None else held[holder]).append(lease.range_id)
    total = len(unheld) + sum(map(len, held.values()))
    share, extra = divmod(total, len(held))
    by_load = sorted(held, key=lambda name: (-len(held[name]), name))
    room = {name: share + (rank < extra) for rank, name in enumerate(by_load)}
    assigned: dict[RangeId, HostName] = {}
    for name, ranges in held.items():
        assigned.update(dict.fromkeys(ranges[: room[name]], name))
        unheld.extend(ranges[room[name] :])
    seats = (name for name in held for _ in range(room[name] - len(held[name])))
    assigned.update(zip(sorted(unheld), seats, strict=True))
    return assigned


def _holder(lease: Lease, members: Collection[HostName]) -> HostName | None:
    if lease.next_owner in members:
        return lease.next_owner
    return lease.owner if lease.owner in members else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One host's part of the plan: what it may take at once, and what it should steal."""

    acquire: Sequence[Lease] = ()
    steal: Sequence[Lease] = ()


def line_of(
    me: HostName,
    assignment: Assignment,
    leases: Iterable[Lease],
    *,
    held: Collection[RangeId],
    expired: Collection[RangeId],
    living: Collection[HostName],
) -> Line:
    """Pick from the plan what ``me`` has to do. Available leases come before expired ones.

    ``held`` is what ``me`` reads already. What carries our name without that, from before
    a restart or from a claim whose answer was lost, is available to us at once. A lease
    is stolen only from a living owner; a dead one's is acquired when it has expired.
    """
    available: list[Lease] = []
    dead: list[Lease] = []
    steal: list[Lease] = []
    for lease in sorted(leases, key=lambda x: x.range_id):
        if assignment.get(lease.range_id) != me or lease.range_id in held:
            continue
        if lease.owner is None or lease.owner == me:
            available.append(lease)
        elif lease.range_id in expired:
            dead.append(lease)
        elif lease.owner in living:
            steal.append(lease)
    return Line(acquire=[*available, *dead], steal=steal)
