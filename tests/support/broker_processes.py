"""Brokers as processes over one place, a producer that counts up, and what was read."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import aiohttp

from changefeed import Record
from changefeed.feeds.errors import FeedUnavailable, RangeDamaged
from changefeed.feeds.feed import Feed, RangeEnded, RangeId
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import parse_address
from changefeed.log.client.client import BrokerClient
from changefeed.log.producer import Producer
from tests.support.cluster_places import ClusterPlace
from tests.support.commands import running
from tests.support.emulator_process import free_port
from tests.support.processes import PATIENCE, Running

QUICK_BROKER = (
    "--set=membership.expiration=2",
    "--set=compaction.enabled=false",  # stories damage objects, which must be what is read
)
T = TypeVar("T")
KEYS = 40


async def ready(port: int, command: Running | None = None) -> None:
    """Wait until a broker takes records, as long as its command runs, where that is given."""
    said = "nothing"
    limit = aiohttp.ClientTimeout(total=5)
    try:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession(timeout=limit) as session:
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                        if answer.status == 200:
                            return
                        said = await answer.text()
                except (aiohttp.ClientError, TimeoutError) as error:
                    said = repr(error)
                if command is not None:
                    assert command.process.returncode is None, command.said
                await asyncio.sleep(0.05)
    except TimeoutError:
        log = "" if command is None else command.said
        raise AssertionError(f"port {port} says {said}; the broker says {log}") from None


class BrokerProcesses:
    """The brokers of one cluster, by their names; each has a port of its own for good."""

    def __init__(self, cwd: Path, place: ClusterPlace, names: str, *options: str) -> None:
        self.place = place
        self._options = (*QUICK_BROKER, *options)
        self.ports = {x: free_port() for x in names.split()}
        self.running: dict[str, Running] = {}
        self._cwd = cwd
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def address(self) -> str:
        hosts = ",".join(f"127.0.0.1:{x}" for x in self.ports.values())
        return f"brokers://{hosts}/orders"

    async def start(self, *names: str, place: ClusterPlace | None = None) -> None:
        """Start some at the same time; return once all take records."""
        for name in names:
            found = place or self.place
            flags = (f"--cluster={found.address}", f"--name={name}")
            self.running[name] = await self._stack.enter_async_context(
                running(
                    *("broker", *flags, f"--set=web.port={self.ports[name]}", *self._options),
                    cwd=self._cwd,
                    env=found.environment,
                )
            )
        await asyncio.gather(*(ready(self.ports[x], self.running[x]) for x in names))

    def signal(self, name: str, number: int) -> None:
        self.running[name].process.send_signal(number)

    async def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].process.kill()
            await self.running[name].process.wait()

    async def leave(self, name: str) -> int:
        self.running[name].process.terminate()
        return await self.running[name].ends()

    def said(self, name: str, event: str) -> int:
        return len(self.running[name].events(event))

    def client(self) -> AbstractAsyncContextManager[BrokerClient]:
        scheme, _, place = self.address.partition(":")
        return BrokerClient.open(parse_address(scheme, place), BrokerAccess())


class Load:
    """A producer that counts up for each key, with pauses if asked, until it is stopped."""

    def __init__(self, producer: Producer) -> None:
        self.count = 0
        self._stop = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._task = asyncio.create_task(self._run(producer))

    async def _run(self, producer: Producer) -> None:
        while not self._stop.is_set():
            await self._goes_on.wait()
            body = b"%d" % self.count
            await producer.send_many([Record(key=f"k{k}", body=body) for k in range(KEYS)])
            self.count += 1
            await asyncio.sleep(0.02)

    def pause(self) -> None:
        self._goes_on.clear()

    def resume(self) -> None:
        self._goes_on.set()

    async def stop(self) -> None:
        self._stop.set()
        await self._task

    async def goes_on(self) -> None:
        """Wait until some more was acknowledged, of every key."""
        before = self.count
        async with asyncio.timeout(PATIENCE):
            while self.count < before + 5:
                assert not self._task.done(), self._task.result()
                await asyncio.sleep(0.05)

    @property
    def expected(self) -> dict[str, list[int]]:
        return {f"k{k}": list(range(self.count)) for k in range(KEYS)}


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while brokers do not answer, as hosts do."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await ask()
            except FeedUnavailable:
                await asyncio.sleep(0.2)


async def by_key(feed: Feed) -> tuple[dict[str, list[int]], dict[RangeId, str]]:
    """Read everything, parents first; return it by key, and what is said of damaged ranges."""
    found: dict[str, list[int]] = {}
    damaged: dict[RangeId, str] = {}
    for r in await patiently(feed.ranges):
        after = await patiently(partial(feed.start, r, "beginning"))
        try:
            while (page := await patiently(partial(feed.read, r, after, 1000))).changes:
                after = page.position
                for x in page.changes:
                    found.setdefault(x.key, []).append(x.value())
        except RangeEnded:
            continue
        except RangeDamaged as error:
            damaged[r.id] = str(error)
    return found, damaged
