"""A feed with a fleet over it: hosts of Java's processor, and of ours, beside one another."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from changefeed.emulator import DEVELOPMENT_KEY
from tests.strangers.programs import java, started
from tests.support.commands import Running, running
from tests.support.emulator_process import control, emulator_process

JAVA_PREFIX: Final = "fleet127.0.0.1_d_orders"
"""What handleChanges of Java puts before the ids of its leases."""

_KEYS: Final = 16
_PATIENCE: Final = 60.0
_QUICK: Final = tuple(
    f"--set={x}"
    for x in (
        "leases.expiration=5",
        "leases.renew_interval=0.5",
        "leases.balance_interval=0.5",
        "leases.rebalance_delay=0.5",
        "leases.call_timeout=2",
        "feed.poll_interval=0.1",
        "feed.ranges_interval=0.5",
        "feed.page_size=20",
    )
)


class JavaHost:
    """A process of Java's processor, and what it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @property
    def ids(self) -> list[str]:
        return [x["id"] for x in self.lines if "id" in x]

    @property
    def operations(self) -> list[str]:
        return [x["operation"] for x in self.lines if x.get("operation")]

    async def says(self, word: str) -> None:
        await reached(lambda: any(word in x for x in self.lines))

    async def stop(self) -> None:
        """End it in order: its leases are released."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self.says("stopped")
        await self._process.wait()

    async def kill(self) -> None:
        self.kill_now()
        await self._process.wait()

    def kill_now(self) -> None:
        self._process.kill()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait({self._reading})


class World:
    """An emulator with ``d/orders`` of two ranges, and the items written to it so far."""

    def __init__(self, cwd: Path, url: str, client: CosmosClient) -> None:
        self.cwd = cwd
        self.url = url
        self.client = client
        self.written: list[str] = []
        self._file = cwd / "handled"
        self._file.touch()

    @property
    def by_python(self) -> list[str]:
        """The ids that our hosts handled, in the order of handling."""
        return [f"{key}-{n}" for key, n, _ in self._handled()]

    def by_process(self, pid: int) -> list[str]:
        """Return the ids that one of our hosts handled."""
        return [f"{key}-{n}" for key, n, by in self._handled() if by == pid]

    def _handled(self) -> list[tuple[str, int, int]]:
        return [json.loads(x) for x in self._file.read_text().splitlines()]

    async def write(self, rounds: int) -> None:
        """Write the next items of each key."""
        orders = self.client.get_database_client("d").get_container_client("orders")
        first = len(self.written) // _KEYS
        for n in range(first, first + rounds):
            for k in range(_KEYS):
                await orders.create_item({"id": f"k{k}-{n}", "customer": f"k{k}", "n": n})
                self.written.append(f"k{k}-{n}")

    async def split(self, name: str, at: str | None = None) -> None:
        where: dict[str, Any] = {"database": "d", "container": "orders", "range": name}
        await control(self.url, "POST", "split", **where, **({"at": at} if at else {}))

    async def merge(self, *names: str) -> None:
        where = {"database": "d", "container": "orders", "ranges": names}
        await control(self.url, "POST", "merge", **where)

    @asynccontextmanager
    async def java(self, kind: str, name: str) -> AsyncIterator[JavaHost]:
        where = {"COSMOS_ENDPOINT": self.url, "COSMOS_KEY": DEVELOPMENT_KEY}
        async with started(java("Processor", kind, name), where) as process:
            host = JavaHost(process)
            try:
                await host.says("started")
                yield host
            finally:
                await host.close()

    def python(
        self, name: str, prefix: str = JAVA_PREFIX, more: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[Running]:
        return running(
            "run",
            "--observer=tests.acceptance.cosmos_recorder:record",
            f"--feed=cosmos+{self.url}d/orders",
            f"--leases=cosmos+{self.url}d/leases?prefix={prefix}",
            f"--name={name}",
            *_QUICK,
            *(f"--set={x}" for x in more),
            cwd=self.cwd,
            env={"RECORD": str(self._file), "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    async def all_in(self, ids: Callable[[], list[str]]) -> None:
        """Wait until everything that was written is among some ids."""
        await reached(lambda: set(self.written) <= set(ids()))
        assert set(ids()) == set(self.written)


@asynccontextmanager
async def a_world(cwd: Path) -> AsyncIterator[World]:
    async with emulator_process(cwd) as (_, url), CosmosClient(url, DEVELOPMENT_KEY) as client:
        database = await client.create_database("d")
        await database.create_container(
            "orders", PartitionKey("/customer"), offer_throughput=20_000
        )
        await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)
        yield World(cwd, url, client)


async def reached(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not state():  # noqa: ASYNC110 - other processes do not set events
            await asyncio.sleep(0.1)
