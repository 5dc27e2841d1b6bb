"""An emulator of Cosmos DB in a process of its own, with containers full of items; and a proxy
before it that answers pages of feeds from memory, built with Go when it is asked for.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from azure.cosmos import PartitionKey, ThroughputProperties
from azure.cosmos.aio import ContainerProxy, CosmosClient

from changefeed.feeds.cosmos.address import EMULATOR_KEY

DATABASE = "bench"
_REPLAY: Final = Path(__file__).parent / "replay" / "main.go"
TRANSACTION: Final = 50
_WRITERS = 8
_THROUGHPUT_OF_A_RANGE = 6_000
_SERVE = """
import asyncio
from cosmos_emulator import EmulatorSettings, serve
asyncio.run(serve(EmulatorSettings(port=0), ready=lambda url: print(url, flush=True)))
"""


@asynccontextmanager
async def endpoint() -> AsyncIterator[str]:
    """Serve an emulator that keeps all in memory; yield its URL."""
    async with _serving(sys.executable, "-c", _SERVE) as url:
        yield url


@asynccontextmanager
async def replaying(url: str) -> AsyncIterator[str]:
    """Serve a proxy before an endpoint whose feeds do not change any more; yield its URL."""
    with TemporaryDirectory(prefix="bench-") as place:
        built = f"{place}/replay"
        build = await asyncio.create_subprocess_exec("go", "build", "-o", built, str(_REPLAY))
        assert await build.wait() == 0, "Go could not build the proxy"
        async with _serving(built, url) as proxy:
            yield proxy


@asynccontextmanager
async def _serving(*command: str) -> AsyncIterator[str]:
    """Run a server that prints its URL first."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        assert process.stdout is not None, "it was asked for"
        url = (await process.stdout.readline()).decode().strip()
        assert url, f"{command[0]} has ended"
        yield url
    finally:
        process.kill()
        await process.communicate()


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[CosmosClient]:
    async with CosmosClient(url, EMULATOR_KEY) as client:
        yield client


async def make_container(url: str, name: str, *, ranges: int, items: int) -> None:
    """Make a container with so many physical ranges, and items."""
    async with client_of(url) as client:
        database = await client.create_database_if_not_exists(DATABASE)
        await database.create_container(
            name,
            PartitionKey("/pk"),
            offer_throughput=ThroughputProperties(
                offer_throughput=ranges * _THROUGHPUT_OF_A_RANGE
            ),
        )
    await write_items(url, name, items)


async def write_items(url: str, name: str, items: int) -> None:
    """Write items of about 300 bytes.

    Items are written by 50 in a transaction, which is quick, and gives all of them one
    LSN: a page does not end within one.
    """
    async with client_of(url) as client:
        container = client.get_database_client(DATABASE).get_container_client(name)
        few = asyncio.Semaphore(_WRITERS)

        async def write(first: int) -> None:
            async with few:
                await _write_batch(container, first)

        async with asyncio.TaskGroup() as group:
            for first in range(0, items, TRANSACTION):
                group.create_task(write(first))


async def _write_batch(container: ContainerProxy, first: int) -> None:
    key = f"key-{first // TRANSACTION}"
    batch: list[Any] = [
        ("upsert", ({"id": f"{n}", "pk": key, "n": n, "pad": "x" * 160},))
        for n in range(first, first + TRANSACTION)
    ]
    await container.execute_item_batch(batch, partition_key=key)
