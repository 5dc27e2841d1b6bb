from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
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


@pytest.mark.parametrize(("before", "joining"), [*product([1, 2, 3, 5, 8, 12], [1, 2, 4, 8])])
def test_hosts_that_join_a_balanced_fleet_cost_the_moves_of_the_closed_form(
    before: int, joining: int
) -> None:
    for partitions in (1, 7, 12, 64, 100):
        old = [host(n) for n in range(before)]
        balanced = plan([lease(n) for n in range(partitions)], old)
        leases = [lease(n, balanced[RangeId(f"r{n:03}")]) for n in range(partitions)]
        share, extra = divmod(partitions, before + joining)
        richer = sum(load > share for load in Counter(balanced.values()).values())
        everyone = [*old, *(host(50 + n) for n in range(joining))]
        expected = joining * share + max(0, extra - richer)
        assert moves(leases, plan(leases, everyone), old) == expected


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


def test_a_lease_on_its_way_counts_as_arrived() -> None:
    a, b = host(0), host(1)
    leases = [lease(0, a), replace(lease(1, a), next_owner=b)]
    assert plan(leases, [a, b]) == {"r000": a, "r001": b}


def test_a_request_of_a_host_that_is_gone_is_forgotten() -> None:
    a, gone = host(0), host(9)
    assert plan([replace(lease(0, a), next_owner=gone)], [a]) == {"r000": a}


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
        reading=[RangeId(x) for x in reading],
        expired=[RangeId(x) for x in expired],
        living=[host(0), host(1)],
    )
    return [(duty, lease.range_id) for duty, lease in line]


def test_a_host_takes_available_then_expired_leases_and_steals_from_the_living() -> None:
    me, rich, dead, gone = host(0), host(1), host(2), host(3)
    leases = [lease(0, rich), lease(1, dead), lease(2), lease(3, gone)]
    mine = {x.range_id: me for x in leases}
    assert actions(me, mine, *leases, expired=["r001"]) == [
        (Action.ACQUIRE, "r002"),
        (Action.ACQUIRE_EXPIRED, "r001"),
        (Action.STEAL, "r000"),
    ]


def test_a_host_takes_what_carries_its_name_back_at_once() -> None:
    me = host(0)
    leases = [lease(0, me), lease(1, me)]
    assignment = plan(leases, [me])
    assert actions(me, assignment, *leases, reading=["r001"], expired=["r000", "r001"]) == [
        (Action.ACQUIRE, "r000")
    ]


def test_an_owner_parts_with_what_a_living_host_asks_for_or_what_is_paused() -> None:
    me = host(0)
    asked_for = lease(0, me).asked_by(host(1))
    asked_by_the_dead = lease(1, me).asked_by(host(7))
    paused = lease(2, me).paused_because("for a test")
    kept = {RangeId(f"r{n:03}"): me for n in range(3)}
    owned = ["r000", "r001", "r002"]
    assert actions(me, kept, asked_for, asked_by_the_dead, paused, reading=owned) == [
        (Action.DRAIN, "r000"),
        (Action.DRAIN, "r002"),
        (Action.CLEAR, "r001"),
    ]


def test_a_request_is_withdrawn_when_the_plan_has_changed() -> None:
    me, owner = host(0), host(1)
    asked_for = lease(0, owner).asked_by(me)
    assert actions(me, {RangeId("r000"): owner}, asked_for) == [(Action.WITHDRAW, "r000")]
