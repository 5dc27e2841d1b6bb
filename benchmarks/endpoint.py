"""An emulator of Cosmos DB in a process of its own, with containers full of items."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from azure.cosmos import PartitionKey, ThroughputProperties
from azure.cosmos.aio import ContainerProxy, CosmosClient

from changefeed.feeds.cosmos.address import EMULATOR_KEY

DATABASE = "bench"
_BATCH = 50
_WRITERS = 8
_THROUGHPUT_OF_A_RANGE = 10_000
_SERVE = """
import asyncio
from cosmos_emulator import EmulatorSettings, serve
asyncio.run(serve(EmulatorSettings(port=0), ready=lambda url: print(url, flush=True)))
"""


@asynccontextmanager
async def endpoint() -> AsyncIterator[str]:
    """Serve an emulator that keeps all in memory; yield its URL."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVE, stdout=PIPE)
    try:
        assert process.stdout is not None, "it was asked for"
        url = (await process.stdout.readline()).decode().strip()
        assert url, "the emulator has ended"
        yield url
    finally:
        process.kill()
        await process.communicate()


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[CosmosClient]:
    async with CosmosClient(url, EMULATOR_KEY) as client:
        yield client


async def make_container(url: str, name: str, *, ranges: int, items: int) -> None:
    """Make a container with so many physical ranges, and items of about 300 bytes.

    Items are written by 50 in a transaction, which is quick, and gives all of them one
    LSN: a page does not end within one.
    """
    async with client_of(url) as client:
        database = await client.create_database_if_not_exists(DATABASE)
        container = await database.create_container(
            name,
            PartitionKey("/pk"),
            offer_throughput=ThroughputProperties(
                offer_throughput=ranges * _THROUGHPUT_OF_A_RANGE
            ),
        )
        few = asyncio.Semaphore(_WRITERS)

        async def write(first: int) -> None:
            async with few:
                await _write_batch(container, first)

        async with asyncio.TaskGroup() as group:
            for first in range(0, items, _BATCH):
                group.create_task(write(first))


async def _write_batch(container: ContainerProxy, first: int) -> None:
    key = f"key-{first // _BATCH}"
    batch: list[Any] = [
        ("upsert", ({"id": f"{n}", "pk": key, "n": n, "pad": "x" * 160},))
        for n in range(first, first + _BATCH)
    ]
    await container.execute_item_batch(batch, partition_key=key)


async def counted(url: str) -> Mapping[str, Mapping[str, int]]:
    """Return how often each operation was answered with each status, and start anew."""
    requests = f"{url}_emulator/requests"
    async with aiohttp.ClientSession() as session:
        async with session.get(requests) as got:
            counts: Mapping[str, Mapping[str, int]] = await got.json()
        async with session.delete(requests):
            return counts
