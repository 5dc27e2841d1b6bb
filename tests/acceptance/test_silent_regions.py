"""A host whose feed and leases are in a region that refuses connections, or is silent."""

import asyncio
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY
from cosmos_emulator.testing import Account
from tests.support.commands import QUICK, running
from tests.support.emulator_process import emulator_process

WEST, EAST = "West US", "East US"
BEFORE_THE_CLIENT_LOOKS = 150
"""Seconds: by itself, azure-cosmos reads the account again after 300."""


@pytest.mark.parametrize("failure", ["refuses", "hangs"])
async def test_a_host_soon_follows_the_writes_away_from_a_region_that_says_nothing(
    tmp_path: Path, failure: str
) -> None:
    (tmp_path / "show.py").write_text(
        "async def show(context, changes):\n    for x in changes: print(x.id, flush=True)\n"
    )
    places = [f"--region={WEST}", f"--region={EAST}"]
    async with emulator_process(tmp_path, *places) as (_, url):
        account = Account(url=url)

        async def write(name: str) -> None:
            async with CosmosClient(url, DEVELOPMENT_KEY, preferred_locations=[EAST]) as client:
                shop = await client.create_database_if_not_exists("d")
                made = await shop.create_container_if_not_exists("c", PartitionKey("/pk"))
                await made.create_item({"id": name, "pk": "p"})

        async def positions() -> list[str]:
            async with CosmosClient(url, DEVELOPMENT_KEY, preferred_locations=[EAST]) as client:
                leases = client.get_database_client("d").get_container_client("l")
                return [
                    x["ContinuationToken"]
                    async for x in leases.query_items(
                        "SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)"
                    )
                ]

        await write("first")
        at = f"cosmos+{url}d"
        where = [f"--feed={at}/c", f"--leases={at}/l", "--set=leases.create=true"]
        host = running("run", "--observer=show:show", *where, *QUICK, cwd=tmp_path)
        async with host as process:
            await process.prints("first")
            if failure == "hangs":
                await asyncio.to_thread(account.fault, "delay", "*", region=WEST, seconds=600)
            else:
                await asyncio.to_thread(account.region, WEST, down=True)
            await process.says('"event": "call.failed"')
            await asyncio.to_thread(account.region, EAST, writes=True)
            before = await positions()
            await write("second")
            async with asyncio.timeout(BEFORE_THE_CLIENT_LOOKS):
                await process.prints("second")
                while await positions() == before:  # noqa: ASYNC110 - polls a server
                    await asyncio.sleep(0.2)
            await process.stops()
