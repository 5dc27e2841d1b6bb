"""A processor that reads in a region which lags, while regions go down and take over."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest_asyncio
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from changefeed import ChangeFeedProcessor, Settings
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backend import OpenOptions
from changefeed.host.settings import LeaseSettings
from cosmos_emulator import DEVELOPMENT_KEY, EmulatorSettings
from cosmos_emulator.settings import RegionSettings
from cosmos_emulator.testing import Account, running
from tests.support.cosmos_feeds import Seen

WEST, EAST = "West US", "East US"
REGIONS = (RegionSettings(name=WEST), RegionSettings(name=EAST, lag=0.3))
KEYS = [f"key-{n}" for n in range(8)]
QUICK = Settings(
    leases=LeaseSettings(expiration=4).with_timing(balance_interval=0.05, rebalance_delay=0),
)


class Program:
    """Writes in the region that writes; its processor reads in the east, if it can."""

    def __init__(self, account: Account, client: CosmosClient, reading: CosmosClient) -> None:
        database = reading.get_database_client("d")
        self.items = client.get_database_client("d").get_container_client("c")
        self.feed = database.get_container_client("c")
        self.leases = database.get_container_client("leases")
        self.seen = Seen(KEYS)
        self.url = account.url
        self._account = account

    def processor(self) -> ChangeFeedProcessor:
        return ChangeFeedProcessor(
            self.feed,
            self.leases,
            self.seen.see,
            processor_name="to-search",
            instance_name="anna",
            settings=QUICK,
            poll_interval=timedelta(milliseconds=50),
        )

    async def write(self, step: int) -> None:
        for key in KEYS:
            await self.items.create_item({"id": f"{key}-{step}", "pk": key, "step": step})

    async def region(self, name: str, **what: float) -> None:
        await asyncio.to_thread(self._account.region, name, **what)


@pytest_asyncio.fixture
async def program() -> AsyncIterator[Program]:
    settings = EmulatorSettings(port=0, regions=REGIONS)
    async with (
        running(settings) as url,
        CosmosClient(url, DEVELOPMENT_KEY) as client,
        CosmosClient(url, DEVELOPMENT_KEY, preferred_locations=[EAST, WEST]) as reading,
    ):
        database = await client.create_database("d")
        await database.create_container("c", PartitionKey("/pk"), offer_throughput=20_000)
        await database.create_container("leases", PartitionKey("/id"))
        yield Program(Account(url=url), client, reading)


async def test_each_change_is_seen_once_whichever_region_is_read_and_whichever_writes(
    program: Program,
) -> None:
    await program.write(0)
    async with program.processor():
        await program.seen.reach(0)
        await program.region(EAST, lag=600)
        await program.write(1)
        await asyncio.sleep(1)
        assert program.seen.steps == {x: [0] for x in KEYS}  # it reads in the east
        await program.region(EAST, down=True)
        await program.write(2)
        await program.seen.reach(2)
        await program.region(EAST, down=False)
        await program.write(3)
        await program.region(EAST, writes=True)
        await program.write(4)
        await program.region(WEST, down=True)
        await program.seen.reach(4)
    async with program.processor():  # from positions of either region
        await program.write(5)
        await program.seen.reach(5)
    assert program.seen.steps == {x: [0, 1, 2, 3, 4, 5] for x in KEYS}


async def test_a_feed_is_read_in_the_region_that_its_address_names(program: Program) -> None:
    await program.region(EAST, lag=600)
    await program.write(0)
    of_west, of_east = [await _count(program, x) for x in ("", "?regions=eastus,West US")]
    assert (of_west, of_east) == (len(KEYS), 0)
    await program.region(EAST, down=True)
    assert await _count(program, "?regions=East US,West US") == len(KEYS)


async def _count(program: Program, options: str) -> int:
    address = f"{program.url.replace('http', 'cosmos+http', 1)}d/c{options}"
    async with open_feed(address, OpenOptions()) as feed:
        ranges = await feed.ranges()
        pages = [await feed.read(x, await feed.start(x, "beginning"), 100) for x in ranges]
    return sum(len(x.changes) for x in pages)
