from collections import Counter
from collections.abc import Collection, Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.plan import Action, Assignment, actions_for, plan
from tests.support import make

NOW = Incarnation("now")


def host(n: int) -> HostName:
    return HostName(f"h{n:02}")


def lease(n: int, owner: HostName | None = None) -> Lease:
    empty = make.lease(f"r{n:03}")
    return empty if owner is None else empty.taken_by(owner, NOW)


def moves(
    leases: list[Lease], assignment: Mapping[RangeId, HostName], living: list[HostName]
) -> int:
    return sum(x.owner in living and x.owner != assignment[x.range_id] for x in leases)


def spread(assignment: Mapping[RangeId, HostName], members: list[HostName]) -> int:
    load = Counter(assignment.values())
    return max(load[x] for x in members) - min(load[x] for x in members)


def fewest_moves(loads: list[int], partitions: int) -> int:
    """Brute logic, not the plan's: the richest get the larger shares; the rest must move."""
    share, extra = divmod(partitions, len(loads))
    shares = [share + (rank < extra) for rank in range(len(loads))]
    return sum(
        max(0, load - room)
        for load, room in zip(sorted(loads, reverse=True), shares, strict=True)
    )


@pytest.mark.parametrize("partitions", range(1, 65))
def test_every_fleet_is_balanced_with_the_fewest_moves_from_a_random_start(
    partitions: int,
) -> None:
    for hosts in range(1, 17):
        random = Random(f"{partitions}/{hosts}")
        members = [host(n) for n in range(hosts)]
        owners = [*members, host(99), None]  # one of them is gone
        leases = [lease(n, random.choice(owners)) for n in range(partitions)]
        assignment = plan(leases, members)
        owned = Counter(x.owner for x in leases)
        assert len(assignment) == partitions
        assert spread(assignment, members) <= 1
        fewest = fewest_moves([owned[x] for x in members], partitions)
        assert moves(leases, assignment, members) == fewest


@given(
    owners=st.lists(st.integers(-1, 7), min_size=1, max_size=40),
    members=st.sets(st.integers(0, 7), min_size=1),
    random=st.randoms(use_true_random=False),
)
def test_the_plan_depends_on_the_values_and_not_on_their_order(
    owners: list[int], members: set[int], random: Random
) -> None:
    leases = [lease(n, None if o < 0 else host(o)) for n, o in enumerate(owners)]
    names = [host(n) for n in sorted(members)]
    assignment = plan(leases, names)
    shuffled = random.sample(leases, k=len(leases))
    assert plan(shuffled, random.sample(names, k=len(names))) == assignment
    settled = [lease(n, assignment[x.range_id]) for n, x in enumerate(leases)]
    assert plan(settled, names) == assignment, "nothing is left to move"


def actions(
    me: HostName,
    assignment: Assignment,
    *leases: Lease,
    reading: Collection[str] = (),
    expired: Collection[str] = (),
) -> list[tuple[Action, str]]:
    line = actions_for(
        me,
        assignment,
        leases,
        reading={RangeId(x) for x in reading},
        expired={RangeId(x) for x in expired},
        living=[host(0), host(1)],
    )
    return [(duty, lease.range_id) for duty, lease in line]


def test_a_host_takes_what_carries_its_name_back_at_once() -> None:
    me = host(0)
    leases = [lease(0, me), lease(1, me)]
    assignment = plan(leases, [me])
    assert actions(me, assignment, *leases, reading=["r001"], expired=["r000", "r001"]) == [
        (Action.ACQUIRE, "r000")
    ]
