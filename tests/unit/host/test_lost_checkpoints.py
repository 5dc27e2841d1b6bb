"""Checkpoints that are kept apart, and get lost: what hosts do about one, and about all."""

import asyncio

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.claims import pause, release, resume
from changefeed.fleet.reset import carry_out, planned
from changefeed.fleet.restore import carry_out as restored
from changefeed.fleet.restore import read_all, steps_to
from changefeed.leases.fleet_record import join_fleet
from changefeed.leases.lease import KeptCheckpoint, Lease
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.memory import MemoryStore
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership

R0, R1 = RangeId("r0"), RangeId("r1")


class Stores:
    def __init__(self) -> None:
        self.ownership = MemoryOwnership()
        self.checkpoints = MemoryCheckpoints()
        self.container = TwoStoreLeases(self.ownership, self.checkpoints)

    async def lose_checkpoint(self, range_id: RangeId) -> KeptCheckpoint:
        stored = await self.checkpoints.read(range_id)
        assert stored is not None
        await self.checkpoints.delete(stored)
        return stored

    def empty_checkpoints(self) -> None:
        self.checkpoints._store = MemoryStore()

    async def listed(self, range_id: RangeId) -> Lease:
        (found,) = (x for x in await self.ownership.list() if x.range_id == range_id)
        return found

    async def paused(self) -> dict[RangeId, str]:
        return {x.range_id: x.paused for x in await self.ownership.list() if x.paused}


async def move_to_the_beginning(feed: MemoryFeed, stores: Stores, range_id: RangeId) -> None:
    await carry_out(
        stores.container, await planned(feed, stores.container, range_id, "beginning")
    )


async def read_by_anna(fleet: Fleet) -> None:
    """Let a host read all there is, and stop."""
    fleet.start("anna")
    await fleet.caught_up()
    await fleet.stop("anna")


async def test_a_lost_checkpoint_pauses_its_range_and_the_others_are_read() -> None:
    stores = Stores()
    feed = make.memory_feed(4, 40)
    async with Fleet(feed, stores.container) as fleet:
        fleet.start("anna")
        fleet.start("bert")
        await fleet.balanced()
        await fleet.caught_up()
        await stores.lose_checkpoint(R1)
        late = [feed.append(f"late-{n}") for n in range(40)]
        await asyncio.sleep(60)
        assert not any(x.done() for x in fleet.running.values())
        assert list(await stores.paused()) == [R1]
        assert "changefeed reset r1" in (await stores.paused())[R1]
        assert (await stores.listed(R1)).owner is None
        others = {(x.range_id, x.sequence) for x in late if x.range_id != R1}
        assert others <= fleet.log.times.keys()
        in_others = {x: n for x, n in fleet.log.times.items() if x[0] != R1}
        assert set(in_others.values()) == {1}


async def test_a_range_whose_checkpoint_was_lost_goes_on_where_a_reset_says() -> None:
    stores = Stores()
    feed = make.memory_feed(4, 40)
    async with Fleet(feed, stores.container) as fleet:
        await read_by_anna(fleet)
        await stores.lose_checkpoint(R1)
        fleet.start("bert")
        await asyncio.sleep(20)
        epoch = (await stores.listed(R1)).epoch
        await move_to_the_beginning(feed, stores, R1)
        moved = await stores.listed(R1)
        assert moved.paused is not None
        assert moved.epoch > epoch
        await resume(stores.container, [R1])
        await fleet.caught_up()
    in_r1 = [n for _, name, n in fleet.log.delivered if name == R1]
    assert in_r1 == 2 * list(range(1, len(in_r1) // 2 + 1))


async def test_a_part_comes_back_under_its_name_though_its_old_checkpoint_was_lost() -> None:
    """A store that evicts what was not read for long takes that of an ended lease first."""
    stores = Stores()
    feed = make.memory_feed(1, 10)
    async with Fleet(feed, stores.container) as fleet:
        await read_by_anna(fleet)
        (whole,) = await feed.ranges()
        low, high = feed.split(whole, 2)
        joined = feed.merge([low, high])
        await make.end_in(stores.container, whole.id, low, high, at="10")
        for part in (low, high):
            await stores.container.create(make.lease(part, at="10", epoch=1))
            await make.end_in(stores.container, part.id, joined, at="10")
        await stores.container.create(make.lease(joined, at="10", epoch=1))
        await make.end_in(stores.container, joined.id, *feed.split(joined, 2), at="10")
        await stores.lose_checkpoint(low.id)
        for n in range(40):
            feed.append(f"late-{n}")
        fleet.start("bert")
        await asyncio.sleep(60)
        assert await stores.paused() == {}
        assert len(fleet.log.times) == 50
        assert set(fleet.log.times.values()) == {1}


async def test_what_nobody_has_read_begins_above_all_epochs_though_its_checkpoint_is_lost() -> (
    None
):
    stores, feed = Stores(), make.memory_feed(1, 10)
    async with Fleet(feed, stores.container) as fleet:
        await read_by_anna(fleet)
        (whole,) = await feed.ranges()
        low, high = feed.split(whole, 2)
        await make.end_in(stores.container, whole.id, low, high, at="10")
        for part, epoch in ((low, 0), (high, 7)):
            await stores.container.create(make.lease(part, at="10", epoch=epoch))
        await stores.lose_checkpoint(low.id)
        fleet.start("bert")
        await asyncio.sleep(20)
        assert (await stores.listed(low.id)).epoch == 10  # 9 is nobody's


@pytest.mark.parametrize("running", [True, False])
async def test_hosts_that_find_another_store_of_checkpoints_end_and_pause_nothing(
    *, running: bool
) -> None:
    stores = Stores()
    await join_fleet(stores.container, "feed")
    async with Fleet(MemoryFeed(4), stores.container) as fleet:
        fleet.start("anna")
        await fleet.balanced()
        if not running:
            await fleet.stop("anna")
        stores.empty_checkpoints()
        fleet.start("bert")
        await asyncio.sleep(60)
        with pytest.raises(StoreRefused, match="has none of this fleet"):
            await fleet.running["bert"]
        assert await stores.paused() == {}


async def test_a_range_whose_checkpoint_was_lost_can_be_paused_released_and_restored() -> None:
    stores = Stores()
    feed = make.memory_feed(2, 40)
    async with Fleet(feed, stores.container) as fleet:
        fleet.start("anna")
        await fleet.balanced()
        await fleet.caught_up()
        saved = await read_all(stores.container)
        assert saved is not None
        await fleet.kill("anna")
    await stores.lose_checkpoint(R1)
    assert await pause(stores.container, [R1], "by hand") == [R1]
    before = await release(stores.container, R1)
    assert before is not None
    assert before.owner == "anna"
    assert (await stores.listed(R1)).owner is None
    found = await read_all(stores.container)
    assert found is not None
    for step in steps_to(saved, found):
        await restored(stores.container, step)
    assert await stores.paused() == {}
    async with Fleet(feed, stores.container) as fleet:
        fleet.start("bert")
        await fleet.caught_up()
        assert not fleet.log.delivered
