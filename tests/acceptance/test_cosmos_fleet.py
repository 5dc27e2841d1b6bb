"""The whole path: host processes, the vendor's client, and the emulator in its own process.

Items are written once and never changed, so every one of them is one change, numbered
along its key. What the fleet has handled stands in one file, in the order of handling.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY
from tests.support.commands import running
from tests.support.emulator_process import control, emulator_process, free_port
from tests.support.processes import PATIENCE, Running

KEYS = [f"customer-{n}" for n in range(24)]
PAGE = 20
QUICK = (
    *("--set=leases.expiration=5", "--set=feed.poll_interval=0.1"),
    f"--set=feed.page_size={PAGE}",
)


class World:
    """An emulator with a container ``orders`` of one range, and a fleet over it."""

    def __init__(self, cwd: Path, url: str) -> None:
        self.cwd = cwd
        self.url = url
        self.written: Counter[str] = Counter()
        self._file = cwd / "handled"
        self._file.touch()

    @property
    def handled(self) -> list[tuple[str, int, int]]:
        """(key, number, process) in the order of handling."""
        return [tuple(json.loads(x)) for x in self._file.read_text().splitlines()]

    async def write(self, rounds: int, pause: float) -> None:
        """Write the next item of each key, so many times, through whatever happens."""
        async with CosmosClient(self.url, DEVELOPMENT_KEY) as client:
            for _ in range(rounds):
                for key in KEYS:
                    await _sure(partial(self._write_one, client, key))
                    self.written[key] += 1
                await asyncio.sleep(pause)

    async def _write_one(self, client: CosmosClient, key: str) -> None:
        n = self.written[key]
        item = {"id": f"{key}-{n}", "customer": key, "n": n}
        await container(client, "orders").upsert_item(item)

    async def split(self) -> None:
        where = {"database": "d", "container": "orders", "seconds": 0.3}
        await control(self.url, "POST", "split", **where)

    def host(self, name: str) -> Any:
        return running(
            "run",
            "--observer=tests.acceptance.cosmos_recorder:record",
            f"--feed=cosmos+{self.url}d/orders",
            f"--leases=cosmos+{self.url}d/leases?prefix=fleet",
            "--set=leases.create=true",
            f"--name={name}",
            *QUICK,
            cwd=self.cwd,
            env={"RECORD": str(self._file), "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    async def all_handled(self, host: Running) -> None:
        """Wait until everything that was written has been handled."""
        wanted = sum(self.written.values())
        async with asyncio.timeout(PATIENCE):
            await host.reaches(lambda: len({x[:2] for x in self.handled}) >= wanted)

    def check(self, *, repeated: int) -> None:
        """Nothing lost, order by key kept, and no more than so many changes repeated."""
        handled = self.handled
        firsts = list(dict.fromkeys(x[:2] for x in handled))
        for key in KEYS:
            assert [n for k, n in firsts if k == key] == list(range(self.written[key])), key
        assert len(handled) - len(firsts) <= repeated


def container(client: CosmosClient, name: str) -> ContainerProxy:
    return client.get_database_client("d").get_container_client(name)


async def _sure(call: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await call()
        except (AzureError, OSError):
            await asyncio.sleep(0.1)
        else:
            return


@asynccontextmanager
async def a_world(cwd: Path, url: str) -> AsyncIterator[World]:
    async with CosmosClient(url, DEVELOPMENT_KEY) as client:
        database = await client.create_database_if_not_exists("d")
        await database.create_container_if_not_exists("orders", PartitionKey("/customer"))
    yield World(cwd, url)


async def test_a_fleet_survives_that_a_host_and_then_the_endpoint_are_killed(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with AsyncExitStack() as hosts:
        async with (
            emulator_process(tmp_path, "--data=kept", port=port) as (emulator, url),
            a_world(tmp_path, url) as world,
        ):
            await world.split()
            fleet = [await hosts.enter_async_context(world.host(f"h{n}")) for n in range(2)]
            for host in fleet:
                await host.says("lease.acquired")
            writing = asyncio.create_task(world.write(20, pause=0.3))
            await asyncio.sleep(1)
            fleet[0].process.kill()
            await fleet[1].says('"how": "expired"')
            emulator.process.kill()
            await emulator.ends()
        async with emulator_process(tmp_path, "--data=kept", port=port):
            await writing
            await world.all_handled(fleet[1])
            await fleet[1].stops()
        # Of the two ranges, each may have had a page in hand at each of the two deaths.
        world.check(repeated=2 * 2 * PAGE)
