"""Two stores that cannot be written at once: every place to die or be overtaken between."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from itertools import product
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.fleet_record import adopt_feed, join_fleet, settle_root
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.stored import StoredCheckpoints, StoredOwnership
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.memory import MemoryStore
from changefeed.stores.store import Record
from changefeed.testing.proxies import Around, FailingCall, proxied
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership

Result = TypeVar("Result")

A, B, C = HostName("a"), HostName("b"), HostName("c")
START = Incarnation("1")
R0 = RangeId("r0")
DIED = StoreUnavailable("the process died here")


def at(position: int) -> Position:
    return Position(str(position))


NEW = make.lease(at=at(0))


class Stores:
    """Both stores, and containers over them with something in between."""

    def __init__(self) -> None:
        self.ownership = MemoryOwnership()
        self.checkpoints = MemoryCheckpoints()
        self.leases = TwoStoreLeases(self.ownership, self.checkpoints)

    def through(self, around: Around) -> LeaseContainer:
        return TwoStoreLeases(
            proxied(self.ownership, around), proxied(self.checkpoints, around)
        )

    def with_checkpoints_through(self, around: Around) -> LeaseContainer:
        return TwoStoreLeases(self.ownership, proxied(self.checkpoints, around))

    async def owned_by_a(self) -> Lease:
        lease = await self.leases.create(NEW)
        return await self.leases.acquire(lease.taken_by(A, START))

    async def wipe_checkpoint(self) -> None:
        checkpoint = await self.checkpoints.read(R0)
        assert checkpoint is not None
        await self.checkpoints.delete(checkpoint)

    async def whole(self) -> Lease:
        lease = await self.leases.read(R0)
        assert lease is not None
        return lease


@pytest.fixture
def stores() -> Stores:
    return Stores()


class Story:
    """What one owner does from first to last, and what it was told of each step."""

    def __init__(self) -> None:
        self.lease = NEW
        self.position = 0  # the last that was surely written
        self.tried = 0  # the last that may have been

    async def run(self, leases: LeaseContainer) -> None:
        self.lease = await leases.create(self.lease)
        self.lease = await leases.acquire(self.lease.taken_by(A, START))
        await self._reach(1, leases.checkpoint)
        self.lease = await leases.replace(self.lease.without_position().renewed())
        await self._reach(2, leases.checkpoint)
        await self._reach(3, leases.replace)
        (listed,) = await leases.list()
        self.lease = replace(listed, renewals=listed.renewals + 1)
        await self._reach(4, leases.replace)
        self.lease = self.lease.taken_by(B, START)
        await self._reach(5, leases.replace)

    async def _reach(self, position: int, write: Callable[[Lease], Awaitable[Lease]]) -> None:
        self.tried = position
        wanted = self.lease.advanced_to(at(position))
        self.lease = await write(wanted)
        self.position = position


@pytest.mark.parametrize("after", [False, True])
async def test_wherever_an_owner_dies_the_next_goes_on_from_what_it_wrote(
    *, after: bool
) -> None:
    for n in range(1, 100):
        stores, story = Stores(), Story()
        cut = FailingCall(DIED, at=n, after=after)
        try:
            await story.run(stores.through(cut))
        except StoreUnavailable:
            pass
        else:
            assert n > 15, "the story is shorter than it should be"
            break
        left = await stores.leases.create(NEW)
        assert left.owner != B or (await stores.whole()).position == at(5)
        (listed,) = await stores.leases.list()
        won = await stores.leases.acquire(listed.taken_by(C, START))
        assert won.position in {at(story.position), at(story.tried)}
        assert await stores.whole() == won
        zombie = replace(story.lease, epoch=won.epoch - 1).advanced_to(at(9))
        for copy in (zombie, replace(zombie, version=won.version)):
            with pytest.raises(LeaseConflict):
                await stores.leases.checkpoint(copy)
        with pytest.raises(LeaseConflict):
            await stores.leases.replace(zombie)
        done = await stores.leases.checkpoint(won.advanced_to(at(7)))
        assert (await stores.whole()).position == at(7)
        await stores.leases.replace(done.released())
    else:
        pytest.fail("the story has no end")


async def test_claiming_gives_up_when_the_old_owner_does_not_stop_writing(
    stores: Stores,
) -> None:
    zombie = await stores.owned_by_a()
    (listed,) = await stores.leases.list()

    async def always_before(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal zombie
        if name == "write":
            zombie = await stores.leases.checkpoint(zombie.advanced_to(at(1)))
        return await call()

    with pytest.raises(StoreUnavailable, match="faster than it can be claimed"):
        await stores.with_checkpoints_through(always_before).acquire(listed.taken_by(B, START))


async def test_no_epoch_is_claimed_again_though_ownership_was_lost(stores: Stores) -> None:
    third = await stores.leases.acquire((await stores.owned_by_a()).taken_by(C, START))
    await stores.ownership.delete((await stores.ownership.list())[0])
    found = await stores.ownership.create(NEW)  # under way since before
    for _ in range(2):
        with pytest.raises(LeaseConflict, match="claimed for epoch 2"):
            await stores.leases.acquire(found.taken_by(B, START))
        (found,) = await stores.leases.list()
    assert (await stores.leases.checkpoint(third.advanced_to(at(1)))).epoch == 2
    assert (await stores.leases.acquire(found.taken_by(B, START))).position == at(1)


async def test_a_lease_whose_checkpoint_was_wiped_has_no_position(
    stores: Stores,
) -> None:
    owned = await stores.owned_by_a()
    await stores.wipe_checkpoint()
    await stores.leases.create(NEW)  # does not make it anew
    found = await stores.leases.read(R0)
    (listed,) = await stores.leases.list()
    assert found == listed
    won = await stores.leases.acquire(owned.taken_by(B, START))
    assert (won.owner, won.position) == (B, None)
    for write in (stores.leases.checkpoint, stores.leases.replace):
        with pytest.raises(LeaseConflict, match=r"no checkpoint any more.*changefeed reset r0"):
            await write(won.advanced_to(at(9)))
    released = await stores.leases.replace(won.released())
    await stores.leases.delete(released)
    assert (await stores.owned_by_a()).position == at(0)


async def test_an_ended_lease_stays_until_its_checkpoint_is_gone(stores: Stores) -> None:
    owned = await stores.owned_by_a()
    old = await stores.checkpoints.read(R0)
    owned = await stores.leases.checkpoint(owned.advanced_to(at(5)))
    ended = await stores.leases.replace(owned.ended_in(make.end()))

    async def lagging(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        return old if name == "read" else await call()

    with pytest.raises(LeaseConflict, match="its checkpoint was written"):
        await stores.with_checkpoints_through(lagging).delete(ended)
    assert (await stores.whole()).ended
    await stores.leases.delete(ended)
    assert (await stores.owned_by_a()).position == at(0)


class WithoutRoom(MemoryStore):
    """A store in which a fleet is not written down, for once."""

    has_room = False

    async def put(self, record: Record) -> Record | None:
        if not self.has_room:
            raise StoreUnavailable("no room")
        return await super().put(record)


async def test_a_fleet_that_was_written_down_in_one_of_two_stores_is_finished_by_the_next() -> (
    None
):
    ownership = WithoutRoom()
    checkpoints = StoredCheckpoints(MemoryStore())
    leases = TwoStoreLeases(StoredOwnership(ownership), checkpoints)
    with pytest.raises(StoreUnavailable):
        await join_fleet(leases, "feed")
    name = (await checkpoints.fleet()).id
    ownership.has_room = True
    assert (await join_fleet(leases, "feed")).id == name != ""


@pytest.mark.parametrize("feed", ["feed", "another"])
async def test_a_fleet_whose_ownership_is_lost_goes_on_where_it_began(feed: str) -> None:
    checkpoints = MemoryCheckpoints()
    began, later = (make.end(NEW.range, at=str(n)) for n in (1, 2))
    for ownership, fed, root in (
        (MemoryOwnership(), "feed", began),
        (MemoryOwnership(), feed, later),
    ):
        leases = TwoStoreLeases(ownership, checkpoints)
        await join_fleet(leases, fed)
        settled = await settle_root(leases, root)
    assert settled == (began if feed == "feed" else later)


@pytest.mark.parametrize("which", ["emptied", "of another fleet"])
async def test_a_store_of_other_checkpoints_is_refused_until_all_ranges_were_moved(
    which: str,
) -> None:
    ownership = MemoryOwnership()
    joined = await join_fleet(TwoStoreLeases(ownership, MemoryCheckpoints()), "feed")
    others = MemoryCheckpoints()
    if which == "of another fleet":
        await join_fleet(TwoStoreLeases(MemoryOwnership(), others), "feed")
    leases = TwoStoreLeases(ownership, others)
    with pytest.raises(StoreRefused, match="store of checkpoints has"):
        await join_fleet(leases, "feed")
    await adopt_feed(leases, "feed")
    assert (await join_fleet(leases, "feed")).id == joined.id


@pytest.mark.parametrize("creators", [1, 2])
def test_a_lease_created_while_another_is_deleted_keeps_its_checkpoint(creators: int) -> None:
    survived = set[tuple[Position | None, int]]()
    for order in product(range(creators + 1), repeat=9 if creators == 1 else 8):
        stores = Stores()
        owned = run_in_order((0,), stores.owned_by_a())
        owned = run_in_order((0,), stores.leases.checkpoint(owned.advanced_to(at(3))))
        here = stores.through(in_turn)
        others = [create_and_own(here) for _ in range(creators)]
        run_in_order(order, here.delete(owned), *others)
        left = run_in_order((0,), stores.leases.read(R0))
        survived.add((None, 0) if left is None else (left.position, left.epoch))
    assert survived == {(None, 0), (at(5), 1), (at(5), 2)}


async def in_turn(_: str, call: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.sleep(0)
    return await call()


async def create_and_own(leases: LeaseContainer) -> None:
    with suppress(LeaseConflict):  # it was not gone yet, or another is quicker
        lease = await leases.create(NEW)
        if lease.owner is None:
            owned = await leases.acquire(lease.taken_by(B, START))
            await leases.checkpoint(owned.advanced_to(at(5)))


def run_in_order(order: Iterable[int], *steps: Coroutine[Any, Any, Result]) -> Result:
    """Take a step of one coroutine after the other, each up to its next call of a store; then
    the rest. Return what the first returns.
    """
    results: dict[int, Result] = {}
    for which in (*order, *(n for n in range(len(steps)) for _ in range(100))):
        if which not in results:
            try:
                steps[which].send(None)
            except StopIteration as end:
                results[which] = end.value
    return results[0]
