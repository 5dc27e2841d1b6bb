"""Who should own what where ranges differ in what they cost."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.host.load_meter import coarse
from changefeed.leases.lease import LOAD_STEP, HostName, Lease
from changefeed.leases.load_plan import (
    AT_ONCE,
    MIN_SHARE,
    TOLERANCE,
    plan_by_load,
)
from changefeed.leases.plan import plan
from tests.support import make

HOSTS = [HostName(f"h{n}") for n in range(8)]
A, B, C, D = HOSTS[:4]
ALL_AT_ONCE = 1.0
NO_LOADS = [None, math.nan, math.inf, -math.inf, -0.5]


def lease(
    n: int, owner: HostName | None, load: float | None, *, cooling: bool = False
) -> Lease:
    return make.lease(f"r{n:03}", owner, epoch=1, load=load, cooling=cooling)


def leases(**loads: Sequence[float | None]) -> list[Lease]:
    """Make leases by the names of their owners."""
    pairs = [(HostName(owner), x) for owner, theirs in loads.items() for x in theirs]
    return [lease(n, owner, load) for n, (owner, load) in enumerate(pairs)]


def alike(*hosts: HostName) -> Mapping[HostName, int | None]:
    return dict.fromkeys(hosts)


def moved(before: Sequence[Lease], after: Mapping[RangeId, HostName]) -> list[Lease]:
    return [x for x in before if x.owner is not None and after[x.range_id] != x.owner]


def carried_out(before: Sequence[Lease], after: Mapping[RangeId, HostName]) -> list[Lease]:
    return [replace(x, owner=after[x.range_id]) for x in before]


# Beside all assignments there are


def small_fleet(seed: int) -> tuple[list[HostName], list[HostName], list[float]]:
    random = Random(seed)
    hosts = HOSTS[: random.choice([2, 3])]
    count = random.randint(len(hosts), 6)
    owners = [random.choice(hosts) for _ in range(count)]
    return hosts, owners, [random.randint(0, 20) / 20 for _ in range(count)]


class Exhaustive:
    """Looks at every assignment of a small fleet. A lease weighs its load and what an idle one
    weighs, as the module says.
    """

    def __init__(self, hosts: Sequence[HostName], loads: Sequence[float]) -> None:
        self.hosts = hosts
        idle = min(0.05, 0.1 * len(hosts) / len(loads))
        self.weights = [x + idle for x in loads]
        self.fair = sum(self.weights) / len(hosts)

    def is_even(self, owners: Sequence[HostName]) -> bool:
        total = dict.fromkeys(self.hosts, 0.0)
        for owner, weight in zip(owners, self.weights, strict=True):
            total[owner] += weight
        most, least = max(total.values()), min(total.values())
        return most <= TOLERANCE * self.fair + 1e-9 and least >= MIN_SHARE * self.fair - 1e-9

    def fewest_moves(self, owners: Sequence[HostName]) -> int | None:
        found = product(self.hosts, repeat=len(self.weights))
        return min((differences(x, owners) for x in found if self.is_even(x)), default=None)


def differences(one: Sequence[HostName], other: Sequence[HostName]) -> int:
    return sum(x != y for x, y in zip(one, other, strict=True))


def test_small_fleets_are_brought_within_the_tolerance_with_the_fewest_moves() -> None:
    outcomes = Counter[str]()
    for seed in range(500):
        hosts, owners, loads = small_fleet(seed)
        every = Exhaustive(hosts, loads)
        if max(every.weights) > TOLERANCE * every.fair:
            continue  # such a range leaves its host no other: see below
        fewest = every.fewest_moves(owners)
        if fewest is None:
            continue
        before = [lease(n, x, y) for n, (x, y) in enumerate(zip(owners, loads, strict=True))]
        assigned = plan_by_load(before, alike(*hosts), at_once=ALL_AT_ONCE)
        after = [assigned[x.range_id] for x in before]
        made = differences(after, owners)
        assert made <= fewest + 2
        if fewest == 0:
            assert made == 0
        even = every.is_even(after)
        outcomes["not even" if not even else f"{made - fewest} more"] += 1
    # What is not brought there would need more than two leases to be exchanged.
    assert outcomes["0 more"] >= 0.95 * outcomes.total()
    assert outcomes["not even"] <= 0.01 * outcomes.total()


@given(
    owners=st.lists(st.integers(-1, 7), min_size=1, max_size=60),
    hosts=st.sets(st.integers(0, 7), min_size=1),
    load=st.sampled_from([None, 0.0, 0.05, 0.7]),
)
def test_count_is_the_special_case_of_equal_loads_and_no_tolerance(
    owners: list[int], hosts: set[int], load: float | None
) -> None:
    members = [HOSTS[n] for n in sorted(hosts)]
    before = [lease(n, None if x < 0 else HOSTS[x], load) for n, x in enumerate(owners)]
    by_load = plan_by_load(before, alike(*members), tolerance=1.0, at_once=ALL_AT_ONCE)
    by_count = plan(before, members)
    # With numbers all hosts agree; which one has the extra lease is another matter.
    assert sorted(Counter(by_load.values()).values()) == sorted(
        Counter(by_count.values()).values()
    )
    living = [x for x in before if x.owner in members]
    assert len(moved(living, by_load)) == len(moved(living, by_count))


# What stays, what moves


def test_of_keys_as_zipf_has_them_no_host_is_left_with_much_more_than_the_mean() -> None:
    """Hosts work half of their time: what leases count for being there, and the steps in
    which loads are stored, hide no more than 0.3 of that.
    """
    ranges, hosts, mean = 16, HOSTS[:4], 0.5
    beyond, moves = list[int](), 0
    for seed in [*range(99), 136]:  # of 300, only 21 and 136 need an exchange
        random, loads = Random(seed), [0.0] * ranges
        weights = [1 / rank for rank in range(1, 2_001)]
        for x in weights:
            loads[random.randrange(ranges)] += x / sum(weights) * mean * len(hosts)
        owned = [lease(n, hosts[n % 4], coarse(x, None)) for n, x in enumerate(loads)]
        while gone := moved(owned, after := plan_by_load(owned, alike(*hosts))):
            moves += len(gone)
            owned = carried_out(owned, after)
        most = max(
            sum(load for x, load in zip(owned, loads, strict=True) if x.owner == host)
            for host in hosts
        )
        if most > max(1.3 * mean, *loads):
            beyond.append(seed)
    assert not beyond
    assert moves <= 135, "an exchange is dear: two leases stop for it"


def test_two_heavy_leases_are_parted_where_no_host_has_room_for_either() -> None:
    before = leases(h0=[0.45, 0.25], h1=[0.1, 0.1, 0.1, 0.1, 0.05], h2=[0.2, 0.1, 0.1, 0.05])
    after = plan_by_load(before, alike(A, B, C))
    assert {x.range_id: after[x.range_id] for x in moved(before, after)} == {
        before[1].range_id: C,
        before[7].range_id: A,
    }
    for full in ({A: 2, B: 5, C: 5}, {A: 3, B: 5, C: 4}):  # one has its third before it gives
        assert moved(before, plan_by_load(before, full)) == []


def test_loads_that_differ_by_less_than_a_step_are_worth_no_exchange() -> None:
    before = leases(h0=[0.1, 0.1, 0.1], h1=[0.0, 0.2])
    assert moved(before, plan_by_load(before, alike(A, B))) == []


@given(
    found=st.lists(
        st.tuples(
            st.integers(-1, 5),
            st.none() | st.integers(0, 40).map(lambda x: x * LOAD_STEP) | st.floats(0, 2),
            st.sampled_from([False, False, False, True]),
        ),
        max_size=40,
    ),
    rooms=st.lists(st.none() | st.integers(1, 20), min_size=1, max_size=6),
)
def test_a_plan_that_was_carried_out_is_followed_by_none_that_moves_more(
    found: list[tuple[int, float | None, bool]], rooms: list[int | None]
) -> None:
    hosts = dict(zip(HOSTS, rooms, strict=False))
    before = [
        lease(n, None if owner < 0 else HOSTS[owner], load, cooling=cooling)
        for n, (owner, load, cooling) in enumerate(found)
    ]
    unbounded = 9.0  # a lease may move several times before a plan is done
    after = plan_by_load(before, hosts, at_once=unbounded)
    for cooling in (False, True):  # whether what was moved may move again, or not yet
        settled = [
            replace(
                x,
                owner=after.get(x.range_id),
                cooling=x.cooling or (cooling and after.get(x.range_id) != x.owner),
            )
            for x in before
        ]
        assert plan_by_load(settled, hosts, at_once=unbounded) == after


def test_a_host_that_joins_gets_half_of_its_share_though_none_has_too_much() -> None:
    owned = leases(**{x: [0.2] * 5 for x in HOSTS[:7]})
    after = plan_by_load(owned, alike(*HOSTS), at_once=ALL_AT_ONCE)
    share = 7.0 / 8
    gained = sum(x.load or 0 for x in moved(owned, after))
    assert MIN_SHARE * share <= gained <= share
    assert set(Counter(x.owner for x in moved(owned, after)).values()) == {1}


# Bounds


def test_a_lease_that_was_moved_stays_until_its_owner_says_otherwise() -> None:
    before = [lease(n, A, 0.5, cooling=True) for n in range(4)]
    assert moved(before, plan_by_load(before, alike(A, B), at_once=ALL_AT_ONCE)) == []
    settled = [replace(x, cooling=False) for x in before]
    assert len(moved(settled, plan_by_load(settled, alike(A, B), at_once=ALL_AT_ONCE))) == 2


# Hosts that differ


def test_a_host_has_no_more_ranges_than_it_may() -> None:
    hosts = {A: 2, B: 3}
    fresh = [lease(n, None, 0.1) for n in range(7)]
    assert Counter(plan_by_load(fresh, hosts).values()) == {A: 2, B: 3}
    owned = [lease(n, A, 0.1) for n in range(7)]
    assigned = plan_by_load(owned, hosts, at_once=ALL_AT_ONCE)
    assert Counter(assigned.values()) == {A: 4, B: 3}, "what is read stays read"


# Loads that are none


@given(
    found=st.lists(
        st.tuples(
            st.integers(-1, 7),
            st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 0.05, 1.0])),
            st.booleans(),
        ),
        max_size=40,
    ),
    hosts=st.dictionaries(
        st.sampled_from(HOSTS),
        st.none() | st.integers(1, 10),
        min_size=1,
    ),
    random=st.randoms(use_true_random=False),
)
def test_any_loads_give_one_plan_whatever_the_order_and_moves_within_bounds(
    found: list[tuple[int, float | None, bool]],
    hosts: dict[HostName, int | None],
    random: Random,
) -> None:
    before = [
        lease(n, None if owner < 0 else HOSTS[owner], load, cooling=cooling)
        for n, (owner, load, cooling) in enumerate(found)
    ]
    assigned = plan_by_load(before, hosts)
    shuffled = dict(random.sample(sorted(hosts.items()), k=len(hosts)))
    assert plan_by_load(random.sample(before, k=len(before)), shuffled) == assigned
    living = [x for x in before if x.owner in hosts]
    gone = [x for x in living if assigned[x.range_id] != x.owner]
    assert len(gone) <= max(2, math.ceil(AT_ONCE * len(before)))
    assert not any(x.cooling for x in gone)
    sizes, had = Counter(assigned.values()), Counter(x.owner for x in living)
    for name, most in hosts.items():
        assert most is None or sizes[name] <= max(most, had[name])
    if len(assigned) < len(before):
        assert all(most and sizes[x] >= most for x, most in hosts.items())


# Many rounds


class Fleet:
    """Carries out plan after plan: what moves cannot move again for ``cooldown`` rounds."""

    def __init__(self, random: Random, ranges: int, hosts: int, *, cooldown: int = 12) -> None:
        self.random = random
        self.hosts = HOSTS[:hosts]
        self.cooldown = cooldown
        self.leases = [lease(n, random.choice(self.hosts), None) for n in range(ranges)]
        self.since: dict[RangeId, int] = {}
        self.moves: list[tuple[int, RangeId]] = []

    def round(self, at: int, measured: Mapping[RangeId, float | None]) -> None:
        for n, one in enumerate(self.leases):
            load = measured[one.range_id]
            if load is not None and math.isfinite(load):
                load = coarse(load, one.load)
            cooling = at - self.since.get(one.range_id, -self.cooldown) < self.cooldown
            self.leases[n] = one.with_load(load, cooling=cooling)
        after = plan_by_load(self.leases, alike(*self.hosts))
        gone = moved(self.leases, after)
        assert len(gone) <= math.ceil(AT_ONCE * len(self.leases))
        self.moves += [(at, x.range_id) for x in gone]
        self.since |= {x.range_id: at for x in gone}
        self.leases = carried_out(self.leases, after)


@pytest.mark.parametrize("seed", range(6))
def test_loads_that_shift_or_lie_move_no_lease_twice_within_the_cooldown(seed: int) -> None:
    random = Random(seed)
    fleet = Fleet(random, 32, random.randint(2, 8))
    lies = [*NO_LOADS, 0.0, 2.0, 1e300]
    for at in range(200):
        any_load = [*lies, random.random(), random.random()]
        fleet.round(at, {x.range_id: random.choice(any_load) for x in fleet.leases})
    last: dict[RangeId, int] = {}
    for at, name in fleet.moves:
        assert at - last.get(name, -fleet.cooldown) >= fleet.cooldown
        last[name] = at
    assert fleet.moves, "there was much to move for"
