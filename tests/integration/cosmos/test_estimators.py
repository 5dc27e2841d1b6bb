"""What .NET's estimator makes of our leases: 0 as soon as there is nothing left to read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from changefeed.feeds.feed import Change, RangeId
from changefeed.fleet.reshape import merge, split
from changefeed.host.host import Host
from changefeed.host.settings import FeedSettings, HostSettings, LeaseSettings, Settings
from changefeed.host.wiring import open_host
from changefeed.observers.adapters import adapt
from tests.support import make
from tests.support.cosmos_feeds import CosmosWorld
from tests.support.dotnet_estimator import RangeGone, remaining_work
from tests.support.processes import PATIENCE


class Leases:
    """The lease container of a fleet, as others read it."""

    def __init__(self, world: CosmosWorld) -> None:
        self._world = world

    async def work(self) -> list[int] | None:
        """Return what is left for each lease; ``None`` where a lease names no range."""
        answer = await self._world.by_hand.send("GET", "/dbs/leases/colls/leases/docs")
        try:
            found = await remaining_work(self._world.by_hand, answer.body["Documents"])
        except RangeGone:
            return None
        return [*found.values()]

    async def come_to_nothing(self, count: int) -> None:
        """Wait until so many leases have nothing left to read."""
        async with asyncio.timeout(PATIENCE):
            while await self.work() != [0] * count:  # noqa: ASYNC110 - others write them
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running_host(world: CosmosWorld) -> AsyncIterator[Host]:
    async def see(changes: Sequence[Change]) -> None:
        """Be done with them."""

    at = world.url.replace("http://", "cosmos+http://")
    settings = Settings(
        host=HostSettings(name="anna"),
        feed=FeedSettings(address=f"{at}d/c", poll_interval=0.05),
        leases=LeaseSettings(
            address=f"{at}leases/leases?processor=billing&feed=d/c",
            create=True,
            expiration=4,
            max_handoff_time=1,
        ).with_timing(balance_interval=0.05, rebalance_delay=0, ranges_interval=0.1),
    )
    async with open_host(settings, adapt(see)) as host, asyncio.TaskGroup() as group:
        group.create_task(host.run())
        try:
            yield host
        finally:
            host.stop()


async def test_nothing_is_left_after_splits_and_merges_at_rest(world: CosmosWorld) -> None:
    leases = Leases(world)
    await world.put("a", "a")
    async with running_host(world):
        await leases.come_to_nothing(1)
        low, high = await world.by_hand.split(range="0")
        await leases.come_to_nothing(2)
        await world.by_hand.merge(low["id"], high["id"])
        await leases.come_to_nothing(2)
    assert await leases.work() == [0, 0]
    await world.put("b", "b")
    assert sum(await leases.work() or []) == 1
    await world.by_hand.split(range="3")
    assert sum(await leases.work() or []) == 1


async def test_nothing_is_left_of_a_range_that_an_operator_splits_and_merges(
    world: CosmosWorld,
) -> None:
    leases = Leases(world)
    await world.put("a", "a")
    async with running_host(world) as host:
        await leases.come_to_nothing(1)
        leased = make.leased(host.feed, host.container, host.settings.leases)
        parts = await split(leased, RangeId("0"), 2)
        await leases.come_to_nothing(2)
        await world.write("bdefghij", 0)
        await leases.come_to_nothing(2)
        merged = await merge(leased, [x.id for x in parts], patience=10)
        assert merged.id == "0"
        await leases.come_to_nothing(1)
        await world.put("c", "c")
        await leases.come_to_nothing(1)
