"""A feed with a fleet over it: hosts of Java's processor, and of ours, beside one another."""

import json
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient, DatabaseProxy

from emulator.tests.clients.endpoint import Endpoint, endpoint
from emulator.tests.clients.programs import java
from tests.support.commands import running
from tests.support.emulator_process import control
from tests.support.looking import until
from tests.support.processes import PATIENCE, Running, started

_KEYS: Final = 16
_QUICK: Final = tuple(
    f"--set={x}"
    for x in (
        "leases.expiration=5",
        "feed.poll_interval=0.1",
        "feed.page_size=20",
    )
)


class JavaHost:
    """A process of Java's processor, and what it printed.

    What it says goes into files: behind a pipe that nobody empties, it would stand still.
    """

    def __init__(self, running: Running) -> None:
        self.running = running

    @property
    def ids(self) -> list[str]:
        return [x["id"] for x in self._lines() if "id" in x]

    @property
    def operations(self) -> list[str]:
        return [x["operation"] for x in self._lines() if x.get("operation")]

    async def stop(self) -> None:
        """End it in order: its leases are released."""
        stdin = self.running.process.stdin
        assert stdin is not None
        stdin.close()
        assert await self.running.ends() == 0, self.running.said
        assert any("stopped" in x for x in self._lines())

    async def kill(self) -> None:
        self.running.process.kill()
        await self.running.ends()

    def _lines(self) -> list[dict[str, Any]]:
        whole = [x for x in self.running.printed.splitlines() if x.endswith("}")]
        return [json.loads(x) for x in whole if x.startswith("{")]


class World:
    """A database with ``orders`` of two ranges, and the items written to it so far."""

    def __init__(self, cwd: Path, where: Endpoint, database: DatabaseProxy) -> None:
        self.cwd = cwd
        self.database = database
        self.written: list[str] = []
        self._where = where
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

    @property
    def is_account(self) -> bool:
        """Whether nothing can be split on demand here."""
        return self._where.is_account

    @property
    def secrets(self) -> Mapping[str, str]:
        """The environment in which our commands find the key."""
        return {"CHANGEFEED_COSMOS__KEY": self._where.key}

    @property
    def java_prefix(self) -> str:
        """What handleChanges of Java puts before the ids of its leases."""
        return f"fleet{urlsplit(self._where.url).hostname}_{self.database.id}_orders"

    def address(self, container: str) -> str:
        scheme = "cosmos" if self._where.url.startswith("https:") else "cosmos+http"
        account = self._where.url.partition(":")[2]
        return f"{scheme}:{account}{self.database.id}/{container}"

    async def write(self, rounds: int) -> None:
        """Write the next items of each key."""
        orders = self.database.get_container_client("orders")
        first = len(self.written) // _KEYS
        for n in range(first, first + rounds):
            for k in range(_KEYS):
                await orders.create_item({"id": f"k{k}-{n}", "customer": f"k{k}", "n": n})
                self.written.append(f"k{k}-{n}")

    async def split(self, name: str, at: str | None = None) -> None:
        where = {"database": self.database.id, "container": "orders", "range": name}
        await control(self._where.url, "POST", "split", **where, **({"at": at} if at else {}))

    async def merge(self, *names: str) -> None:
        where = {"database": self.database.id, "container": "orders", "ranges": names}
        await control(self._where.url, "POST", "merge", **where)

    @asynccontextmanager
    async def java(self, kind: str, name: str) -> AsyncIterator[JavaHost]:
        command = java("Processor", kind, name, self.database.id)
        async with started(
            *command, cwd=self.cwd, env={**os.environ, **self._where.environment}
        ) as process:
            await process.prints('"started"')
            try:
                yield JavaHost(process)
            except BaseException as error:
                error.add_note(f"Java said: {process.said[-2000:]}")
                raise

    @property
    def connection_string(self) -> str:
        return f"AccountEndpoint={self._where.url};AccountKey={self._where.key}"

    def dotnet_leases(self, processor: str) -> str:
        """Where our hosts keep leases under the names that .NET's processor gives them."""
        return f"{self.address('leases')}?processor={processor}&feed={self.database.id}/orders"

    def python(
        self,
        name: str,
        prefix: str | None = None,
        more: Sequence[str] = (),
        *,
        leases: str | None = None,
    ) -> AbstractAsyncContextManager[Running]:
        own_prefix = f"{self.address('leases')}?prefix={prefix or self.java_prefix}"
        return running(
            "run",
            "--observer=tests.acceptance.cosmos_recorder:record",
            f"--feed={self.address('orders')}",
            f"--leases={leases or own_prefix}",
            f"--name={name}",
            *_QUICK,
            *(f"--set={x}" for x in more),
            cwd=self.cwd,
            env={
                "RECORD": str(self._file),
                "PYTHONPATH": str(Path(__file__).parents[2]),
                **self.secrets,
            },
        )

    async def all_in(self, ids: Callable[[], list[str]]) -> None:
        """Wait until everything that was written is among some ids."""
        with suppress(TimeoutError):
            await reached(lambda: set(self.written) <= set(ids()))
        assert set(ids()) == set(self.written)


@asynccontextmanager
async def a_world(cwd: Path) -> AsyncIterator[World]:
    name = f"strangers-{uuid.uuid4().hex[:8]}"
    async with endpoint(cwd) as where, CosmosClient(where.url, where.key) as client:
        database = await client.create_database(name)
        try:
            await database.create_container(
                "orders", PartitionKey("/customer"), offer_throughput=12_000
            )
            await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)
            yield World(cwd, where, database)
        finally:
            await client.delete_database(name)


async def reached(state: Callable[[], bool]) -> None:
    await until(state, within=PATIENCE)
