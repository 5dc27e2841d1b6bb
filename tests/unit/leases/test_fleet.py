"""One snapshot of a fleet: each lease once, whatever a listing shows of it."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.fleet.states import FleetListing, fleet_status
from changefeed.leases.container import ListedFleet
from changefeed.leases.fleet import Fleet, FleetWatch, LeaseListing, ListedAt, is_placeholder
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease, Member, Version
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.timing import Timing
from changefeed.leases.updating import fence_owner
from changefeed.stores.store import WHOLE
from changefeed.testing.lease_cast import not_refused
from tests.support import make

R0 = RangeId("r0")
ME, A, B = HostName("me"), HostName("a"), HostName("b")
A1, A2 = Incarnation("a-1"), Incarnation("a-2")
OWNED = replace(make.lease().taken_by(A, A1), stamp=100.0)
WHOLE_RANGE = make.feed_range("r0", "0", "8")
NOW = ListedAt(asked=0.0, answered=0.0, wall=0.0)


def grown(steps: Sequence[str]) -> Sequence[Lease]:
    """Return the copies of a lease that was written so, the first one first."""
    lease = replace(make.lease(WHOLE_RANGE, load=0.9), version=Version("7"))
    copies = [lease]
    for n, step in enumerate(steps):
        match step:
            case "taken":
                owner = A if lease.owner != A else B
                lease = lease.taken_by(owner, Incarnation(f"{owner}-{n}"))
            case "renewed":
                lease = lease.renewed()
            case "released":
                lease = lease.released()
            case "loaded":
                lease = lease.renewed().with_load(n / 10, cooling=False)
        copies.append(replace(lease, version=Version(str(n + 8))))
    return copies


HISTORIES = st.lists(
    st.sampled_from(["taken", "renewed", "released", "loaded"]), min_size=1, max_size=5
).map(grown)
OTHERS = [make.lease(f"r{n}", "b", load=0.1) for n in range(1, 4)]


def seen(leases: Sequence[Lease]) -> FleetListing:
    keymap = KeyMap(leases)
    return FleetListing(
        feed="",
        place="",
        fleet=FleetWatch(Timing.of(30.0)).take(leases, [], NOW),
        leases=[*keymap.leases.values()],
        keymap=keymap,
    )


MODULES: Mapping[str, Callable[[Sequence[Lease]], object]] = {
    "keymap": lambda leases: KeyMap(leases).leases,
    "fleet": lambda leases: FleetWatch(Timing.of(30.0)).take(leases, [], NOW).leases,
    "status": lambda leases: fleet_status(seen(leases), {}, None, now=9.0),
}


@pytest.mark.parametrize("module", MODULES)
@given(copies=HISTORIES, seed=st.integers(0, 99))
def test_two_copies_of_a_lease_give_one_answer_in_any_order(
    module: str, copies: Sequence[Lease], seed: int
) -> None:
    listed = [*copies[-2:], *OTHERS]
    Random(seed).shuffle(listed)
    once = [copies[-1], *OTHERS]
    assert MODULES[module](listed) == MODULES[module](once)


class Torn(MemoryLeases):
    """Lists what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = list[Sequence[Lease]]()
        self.asked = list[str]()

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        assert heartbeat is None, "this one keeps no members"
        self.asked.append(token)
        return ListedFleet(leases=self.pages.pop(0), members=[], total=None, token="t")


@given(copies=HISTORIES)
async def test_an_older_copy_than_what_is_known_has_all_listed_again(
    copies: Sequence[Lease],
) -> None:
    """A replica lags behind; or the store has lost its last writes, and the copy is right."""
    container = Torn()
    older, known = replace(copies[0], epoch=0), replace(copies[-1], epoch=1)
    listing = LeaseListing(container.list_fleet, lambda: 0.0)
    container.pages = [[known], [older], [known], [older], [older]]
    for believed in (known, known, older):
        leases, _ = await listing.list_fleet()
        assert leases == [believed]
    assert container.asked == [WHOLE, "t", WHOLE, "t", WHOLE]


# Life and death


def member(beats: int = 1, *, incarnation: Incarnation = A1) -> Member:
    return Member(name=A, incarnation=incarnation, heartbeats=beats, stamp=500.0)


class Watch:
    """Expirations of 30 s, or 20 s where stamps are older than 330 s."""

    def __init__(self) -> None:
        self._watch = FleetWatch(Timing.of(30.0), me=ME)

    def take(
        self, at: float, *members: Member, leases: Sequence[Lease] = (), wall: float = 0
    ) -> Fleet:
        moment = ListedAt(asked=at, answered=at, wall=wall)
        return self._watch.take(leases, members, moment)

    def expired(
        self, at: float, *members: Member, lease: Lease = OWNED, wall: float = 0
    ) -> bool:
        return R0 in self.take(at, *members, leases=[lease], wall=wall).expired


def test_a_lease_lives_while_the_heartbeat_of_its_owner_moves() -> None:
    watch = Watch()
    assert not any(watch.expired(x, member(x)) for x in range(0, 200, 10))
    assert not watch.expired(219, member(190))
    assert watch.expired(220, member(190))


def test_another_start_of_the_same_host_keeps_nothing_of_the_one_before_it() -> None:
    watch = Watch()
    watch.expired(0, member(7))
    assert not watch.expired(20, member(1, incarnation=A2))
    assert watch.expired(30, member(2, incarnation=A2))


@pytest.mark.parametrize("lease", [OWNED, replace(OWNED, incarnation=None)])
def test_without_a_record_of_its_owner_no_stamp_of_a_lease_counts(lease: Lease) -> None:
    """A .NET processor, which has none, renews every 17 s, and two of our renewals are 20 s."""
    watch = Watch()
    watch.expired(0, lease=lease, wall=9_000)
    assert not watch.expired(29, lease=lease, wall=9_029)
    assert watch.expired(30, lease=lease, wall=9_030)


async def test_to_fence_an_owner_refuses_the_heartbeat_that_is_on_its_way() -> None:
    container = MemoryLeases()
    beating = not_refused(await container.put_member(member()))
    assert await fence_owner(container, OWNED, beating)
    assert await container.put_member(replace(beating, heartbeats=2)) is None
    (record,) = await container.members()
    assert record.sign_of_life == beating.sign_of_life


async def test_an_owner_that_has_beaten_since_the_listing_is_not_fenced() -> None:
    container = MemoryLeases()
    listed = not_refused(await container.put_member(member()))
    await container.put_member(replace(listed, heartbeats=2))
    assert not await fence_owner(container, OWNED, listed)


async def test_a_record_in_its_place_keeps_an_owner_out_that_has_none() -> None:
    container = MemoryLeases()
    assert await fence_owner(container, OWNED, None)
    (record,) = await container.members()
    assert (record.incarnation, record.stopping) == (A1, True)
    assert is_placeholder(record)
    assert await container.put_member(member()) is None


async def test_an_owner_of_another_kind_is_left_alone() -> None:
    container = MemoryLeases()
    await fence_owner(container, replace(OWNED, incarnation=None), None)
    assert await container.members() == []


# Of which kind an owner is


def test_an_owner_without_a_record_is_of_another_kind_and_may_come_back() -> None:
    watch, theirs = Watch(), replace(OWNED, incarnation=None)
    assert not watch.take(0).shared
    fleet = watch.take(0, leases=[theirs])
    assert fleet.shared
    assert (fleet.foreign, fleet.alive) == (frozenset({A}), frozenset({ME, A}))
    assert not watch.take(0, leases=[replace(theirs, cooling=True)]).foreign
    assert watch.take(31).shared
