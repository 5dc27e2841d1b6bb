"""Broker processes over a directory of this machine, to be counted, stopped and killed.

Every object is synced before its answer, as in production. ``requests`` are those to the
object store, as brokers count them: a store of a cloud charges for the same ones.
"""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from changefeed.feeds.errors import FeedUnavailable
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import BrokersAddress, parse_address
from changefeed.log.client.client import BrokerClient
from tests.support.servers import free_port

from .names import COLLECTION, PARTS

EXPIRATION = 3.0
"""A third of what brokers have by default, so that a kill takes seconds."""
WAITLESS = BrokerAccess(wait=0.0)
"""Readers that are measured come back at once when there is nothing more."""

_SETTINGS: Mapping[str, object] = {
    "log.level": "warning",
    "membership.expiration": EXPIRATION,
}
_PATIENCE = 60.0
_ROOT = Path(__file__).parents[2]


class Cluster:
    """Brokers over one directory. Make it with ``open_cluster``, which ends them.

    ``module`` is what is run as a broker: the command, or one that also writes down how long
    each put took.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object], module: str) -> None:
        self.folder = folder
        self._settings = {**_SETTINGS, **settings}
        self._module = module
        self._running: dict[str, tuple[Process, int]] = {}

    @property
    def address(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for _, port in self._running.values())
        return f"brokers://{hosts}/{COLLECTION}"

    @property
    def where(self) -> BrokersAddress:
        scheme, _, place = self.address.partition(":")
        return parse_address(scheme, place)

    async def start(self, *names: str) -> None:
        """Start brokers; return once all that run have a place in the newest era."""
        for name in names:
            port = free_port()
            command = [sys.executable, "-m", self._module, "broker"]
            with (self.folder / f"{name}.log").open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    f"--cluster=file://{self.folder / 'cluster'}",
                    f"--name={name}",
                    f"--set=web.port={port}",
                    *(f"--set={key}={value}" for key, value in self._settings.items()),
                    cwd=_ROOT,
                    env={**_environment(), "BENCH_PUTS": str(self.folder / "puts")},
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=log,
                )
            self._running[name] = process, port
        await self.settled()

    async def stop(self, name: str) -> None:
        process, _ = self._running.pop(name)
        process.terminate()
        assert await process.wait() == 0, self._said(name)

    async def kill(self, name: str) -> None:
        process, _ = self._running.pop(name)
        process.kill()
        await process.wait()

    async def settled(self) -> None:
        """Wait until the brokers of the newest era are those that run, and all write."""
        until = monotonic() + _PATIENCE
        for _, port in self._running.values():
            while not await asyncio.to_thread(_is_ready, port):
                self._check(until)
                await asyncio.sleep(0.05)

    async def create(self, parts: int) -> None:
        """Create the collection, and wait until it takes records."""
        async with self.client() as client:
            await client.create(parts)
            await _until_open(client, parts)

    async def split(self, partitions: int) -> None:
        """Cut every partition in halves until there are so many."""
        async with self.client() as client:
            while len(opened := (await client.routes()).partitions.open) < partitions:
                await client.split(None)
                await _until_open(client, 2 * len(opened))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[BrokerClient]:
        async with BrokerClient.open(self.where, WAITLESS) as client:
            yield client

    async def requests(self) -> Counter[str]:
        """Return how many requests brokers have sent to the store so far, by operation."""
        found: Counter[str] = Counter()
        for _, port in self._running.values():
            found += await asyncio.to_thread(_requests, port)
        return found

    def busy(self) -> float:
        """Return the seconds of a core that brokers have used so far."""
        return sum(_busy(process.pid) for process, _ in self._running.values())

    def puts(self) -> Sequence[tuple[float, float]]:
        """Return when each object of a row was begun and was on the disk, in that order."""
        lines = (self.folder / "puts").read_text().splitlines()
        return [(float(began), float(ended)) for began, ended in map(str.split, lines)]

    def _check(self, until: float) -> None:
        for name, (process, _) in self._running.items():
            assert process.returncode is None, f"{name} has ended: {self._said(name)}"
            assert monotonic() < until, f"{name} is not ready: {self._said(name)}"

    def _said(self, name: str) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text().splitlines()[-5:])

    async def end(self) -> None:
        for process, _ in self._running.values():
            with suppress(ProcessLookupError):
                process.kill()
        for process, _ in self._running.values():
            await process.wait()


@asynccontextmanager
async def open_cluster(
    *names: str,
    module: str = "changefeed",
    parts: int = PARTS,
    partitions: int = 0,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[Cluster]:
    """Run brokers over a new directory, with the collection in so many parts, or partitions."""
    with TemporaryDirectory(prefix="bench-") as folder:
        cluster = Cluster(Path(folder), settings or {}, module)
        try:
            await cluster.start(*names)
            await cluster.create(parts)
            await cluster.split(partitions or parts)
            yield cluster
        finally:
            await cluster.end()


async def _until_open(client: BrokerClient, partitions: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            with suppress(FeedUnavailable):
                routes = await client.routes()
                if len(routes.partitions.open) == partitions and not routes.topology.ending:
                    return
            await asyncio.sleep(0.05)


def _is_ready(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def _requests(port: int) -> Counter[str]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "changefeed_broker_store_requests_total":
                found[sample.labels["operation"]] += round(sample.value)
    return found


def _busy(pid: int) -> float:
    after_its_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = after_its_name[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _environment() -> Mapping[str, str]:
    return {x: v for x, v in os.environ.items() if not x.startswith("CHANGEFEED_")}
