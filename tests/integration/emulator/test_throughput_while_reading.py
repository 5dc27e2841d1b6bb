"""Throughput is replaced while hosts read: ranges come, and nothing is lost or repeated."""

import asyncio
from pathlib import Path

import pytest
from azure.cosmos.aio import CosmosClient

from changefeed.emulator import DEVELOPMENT_KEY
from tests.integration.cosmos.test_feed_under_host import Seen, running_host, settings, write
from tests.support.cosmos_feeds import cosmos_world

pytestmark = pytest.mark.real_time


async def test_a_host_reads_on_while_throughput_is_replaced(tmp_path: Path) -> None:
    async with cosmos_world() as world, CosmosClient(world.url, DEVELOPMENT_KEY) as client:
        items = client.get_database_client("d").get_container_client("c")
        told, seen = settings(world, tmp_path / "leases.db", page_size=3), Seen()
        await write(world, 0)
        async with running_host(told, seen):
            for step, throughput in enumerate((20_000, 50_000, 400, 100_000), start=1):
                writing = asyncio.create_task(write(world, step))
                await items.replace_throughput(throughput)
                await writing
                await seen.reach(step)
            await asyncio.sleep(0.5)  # time for what should not come
        (told_of,) = await world.by_hand.control("GET", "")
    assert seen.steps == {x: [0, 1, 2, 3, 4] for x in seen.steps}
    assert sum(not x["gone"] for x in told_of["ranges"]) == 10
