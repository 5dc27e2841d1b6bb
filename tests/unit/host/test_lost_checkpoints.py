"""Checkpoints that are kept apart, and get lost: what hosts do about one, and about all."""

import asyncio

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.reset import carry_out, planned
from changefeed.leases.errors import CheckpointMissing
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryCheckpoints, MemoryOwnership
from changefeed.leases.operations.pause import resume
from changefeed.leases.separate_stores import SeparateStores
from tests.support.fleet import Fleet

R0, R1 = RangeId("r0"), RangeId("r1")


class Stores:
    def __init__(self) -> None:
        self.ownership = MemoryOwnership()
        self.checkpoints = MemoryCheckpoints()
        self.container = SeparateStores(self.ownership, self.checkpoints)

    async def lose_checkpoint(self, range_id: RangeId) -> None:
        stored = await self.checkpoints.read(range_id)
        assert stored is not None
        await self.checkpoints.delete(stored)

    async def listed(self, range_id: RangeId) -> Lease:
        (found,) = (x for x in await self.ownership.list() if x.range_id == range_id)
        return found

    async def paused(self) -> dict[RangeId, str]:
        return {x.range_id: x.paused for x in await self.ownership.list() if x.paused}


@pytest.fixture
def stores() -> Stores:
    return Stores()


async def move_to_the_beginning(feed: MemoryFeed, stores: Stores, range_id: RangeId) -> None:
    await carry_out(
        stores.container, await planned(feed, stores.container, range_id, "beginning")
    )


async def test_a_lost_checkpoint_pauses_its_range_and_the_others_are_read(
    stores: Stores,
) -> None:
    feed = MemoryFeed(4)
    async with Fleet(feed, stores.container) as fleet:
        fleet.start("anna")
        fleet.start("bert")
        await fleet.balanced()
        for n in range(40):
            feed.append(f"early-{n}")
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


async def test_a_range_whose_checkpoint_was_lost_goes_on_where_a_reset_says(
    stores: Stores,
) -> None:
    feed = MemoryFeed(4)
    for n in range(40):
        feed.append(f"early-{n}")
    async with Fleet(feed, stores.container) as fleet:
        fleet.start("anna")
        await fleet.caught_up()
        await fleet.stop("anna")
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


async def test_a_range_that_goes_on_in_one_without_a_checkpoint_waits_at_its_end(
    stores: Stores,
) -> None:
    feed = MemoryFeed(2)
    async with Fleet(feed, stores.container) as fleet:
        fleet.start("anna")
        await fleet.balanced()
        low, high = feed.split(R0)
        await stores.ownership.create(Lease(range=low))  # its checkpoint is lost
        await asyncio.sleep(60)
        assert not fleet.running["anna"].done()
        assert list(await stores.paused()) == [R0]
        assert f"changefeed reset {low.id}" in (await stores.paused())[R0]
        await move_to_the_beginning(feed, stores, low.id)
        await resume(stores.container, [R0])
        for n in range(40):
            feed.append(f"late-{n}")
        await fleet.caught_up()
        assert {low.id, high.id} <= {x for _, x, _ in fleet.log.delivered}


async def test_hosts_that_find_no_checkpoint_at_all_end_with_advice_and_pause_nothing(
    stores: Stores,
) -> None:
    feed = MemoryFeed(4)
    async with Fleet(feed, stores.container) as fleet:
        fleet.start("anna")
        await fleet.balanced()
        await fleet.stop("anna")
        for lease in await stores.ownership.list():
            await stores.lose_checkpoint(lease.range_id)
        fleet.start("bert")
        await asyncio.sleep(20)
        assert fleet.running["bert"].done()
        with pytest.raises(CheckpointMissing, match="another store"):
            await fleet.running["bert"]
        assert await stores.paused() == {}
