"""Hosts over Cosmos DB beside their neighbours, by turns, with the CPU that each takes.

``loop``       a task for each range that reads with azure-cosmos, in this process
``raw``        one host in this process, whose observer does nothing
``parsed``     the same, whose observer calls ``change.value()``
``java``       Azure's processor for Java, which parses, in one process
``processes``  ``changefeed run --processes=2``, which parses

All read the same changes in pages of up to 1000, from a proxy that answers pages from memory,
so that no endpoint is measured; leases are in an emulator behind it. Java is warmed by 30
rounds. Time and CPU are those of what comes after the first page, to the last change, so that
neither the start nor the waiting for leases counts. The two processes share the ranges before
they get a page. It needs Java, Maven and Go.
"""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, process_time
from typing import Any, Final

import aiohttp
from azure.cosmos import PartitionKey

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import EMULATOR_KEY, CosmosAccess, CosmosAddress
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.feeds.feed import Change
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import FeedSettings, ObserverSettings
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import HostName
from changefeed.observers.adapters import adapt
from changefeed.observers.range_observers import ObserverSetup
from changefeed.runtime.garbage import keep_freed_buffers

from .endpoint import DATABASE, client_of, endpoint, make_container, replaying
from .java_process import ask, java_process
from .one_host import settings_of
from .result import Result, by_rounds

_ITEMS: Final = 160_000
_RANGES: Final = (1, 4, 16)
_ROUNDS: Final = 5
_WARM_UP: Final = 30
_PAGE: Final = FeedSettings().page_size
_QUICK: Final = {"feed": {"poll_interval": 0.1}, "leases": {"expiration": 3.0}}
_OF_PROCESSES: Final = ("leases.expiration=3", "feed.poll_interval=0.1", "web.port=off")
_PATIENCE: Final = 90.0
_ROOT: Final = Path(__file__).parents[1]
_HUNDRED_THOUSAND: Final = 100_000
_CPU: Final = f"CPU s for {_HUNDRED_THOUSAND:,}"
_fresh = count()

Round = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """So many changes that came at a moment of the monotonic clock.

    ``cpu`` is what their process had taken until then, in seconds.
    """

    at: float
    changes: int
    cpu: float = 0.0


def _rate(batches: Sequence[_Batch]) -> float:
    """Return the changes a second that came after the first batch."""
    first, *others = sorted(batches, key=lambda x: x.at)
    return sum(x.changes for x in others) / (others[-1].at - first.at)


def _cpu(batches: Sequence[_Batch]) -> float:
    """Return the CPU of 100,000 of the changes that came after the first batch."""
    first, *others = batches
    return (others[-1].cpu - first.cpu) * _HUNDRED_THOUSAND / sum(x.changes for x in others)


class _Timed:
    """Batches as they come to one reader in this process."""

    def __init__(self) -> None:
        self.all_here = asyncio.Event()
        self.batches: list[_Batch] = []
        self._left = _ITEMS

    def count(self, changes: int) -> None:
        self.batches.append(_Batch(at=monotonic(), changes=changes, cpu=process_time()))
        self._left -= changes
        if self._left <= 0:
            self.all_here.set()

    async def raw(self, changes: Sequence[Change]) -> None:
        self.count(len(changes))

    async def parsed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            change.value()
        self.count(len(changes))


class Lines:
    """An observer of ``run``: it parses, and appends a line for each batch to a file."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - as long as the process

    async def process(self, changes: Sequence[Change]) -> None:
        for change in changes:
            change.value()
        self._file.write(f"{monotonic()} {len(changes)}\n")


def measure() -> Sequence[Result]:
    keep_freed_buffers()  # as run does
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    async with endpoint() as emulator, replaying(emulator) as url:
        for ranges in _RANGES:
            await make_container(emulator, f"of-{ranges}", ranges=ranges, items=_ITEMS)
        async with client_of(emulator) as client:
            database = client.get_database_client(DATABASE)
            await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)
        async with java_process(url, "Race", DATABASE) as java:
            for n in range(_WARM_UP):
                await _by_java(java, f"of-{_RANGES[n % len(_RANGES)]}")
            return [x for ranges in _RANGES for x in await _of(url, java, ranges)]


async def _of(url: str, java: Process, ranges: int) -> Sequence[Result]:
    feed, group = f"of-{ranges}", f"cosmos.{ranges}"
    rounds = [await _round(url, java, feed) for _ in range(_ROUNDS + 1)][1:]
    results = [
        by_rounds(group, rounds, "loop", "changes/s"),
        by_rounds(group, rounds, "raw", "changes/s", against="loop", goal=1.3),
        by_rounds(group, rounds, "java", "changes/s"),
        by_rounds(group, rounds, "parsed", "changes/s", against="java", goal=1.2),
        *(
            by_rounds(group, rounds, f"{x}.cpu", _CPU)
            for x in ("loop", "raw", "java", "parsed")
        ),
    ]
    if ranges > 1:
        for x in rounds:
            x["processes"] = await _by_processes(url, feed, ranges)
        results.append(
            by_rounds(group, rounds, "processes", "changes/s", against="java", goal=2.2)
        )
    return results


async def _round(url: str, java: Process, feed: str) -> dict[str, float]:
    found: dict[str, float] = {}
    loop, raw, parsed = _Timed(), _Timed(), _Timed()
    await _by_loop(url, feed, loop)
    await _by_host(url, feed, raw, raw.raw)
    await _by_host(url, feed, parsed, parsed.parsed)
    for name, timed in (("loop", loop), ("raw", raw), ("parsed", parsed)):
        found |= {name: _rate(timed.batches), f"{name}.cpu": _cpu(timed.batches)}
    theirs = await _by_java(java, feed)
    cpu = theirs["cpu"] * _HUNDRED_THOUSAND / theirs["changes"]
    return found | {"java": theirs["changes"] / theirs["seconds"], "java.cpu": cpu}


async def _by_loop(url: str, feed: str, timed: _Timed) -> None:
    """Read with the vendor's client until there is nothing more."""
    async with client_of(url) as client:
        container = client.get_database_client(DATABASE).get_container_client(feed)

        async def read(feed_range: dict[str, Any]) -> None:
            pages = container.query_items_change_feed(
                feed_range=feed_range, start_time="Beginning", max_item_count=_PAGE
            ).by_page()
            async for page in pages:
                timed.count(len([x async for x in page]))

        await asyncio.gather(*[read(x) async for x in container.read_feed_ranges()])
    assert timed.all_here.is_set(), "the loop has not found all"


def _leases(url: str) -> str:
    return f"cosmos+{url}{DATABASE}/leases?prefix=ours-{next(_fresh)}"


async def _by_host(url: str, feed: str, timed: _Timed, process: Any) -> None:
    address = CosmosAddress(endpoint=url, database=DATABASE, container=feed)
    async with (
        open_cosmos(address, CosmosAccess()) as opened,
        open_container(_leases(url), OpenOptions()) as container,
    ):
        events = HostEvents(HostName("bench"))
        make = ObserverSetup(adapt(process), ObserverSettings(), events, Random(1))
        host = Host(settings_of(_QUICK), feed=opened, container=container, observers=make)
        running = asyncio.create_task(host.run())
        await timed.all_here.wait()
        host.stop()
        await running


async def _by_java(process: Process, feed: str) -> Mapping[str, float]:
    """Return how many changes came after the first page, and the seconds and CPU of them."""
    found: Mapping[str, float] = await ask(process, f"{feed} {_ITEMS} theirs-{next(_fresh)}-")
    return found


async def _by_processes(url: str, feed: str, ranges: int) -> float:
    """Hold pages back until both hosts have their share of the leases."""
    leases = _leases(url)
    with TemporaryDirectory(prefix="bench-") as place:
        lines = Path(place) / "lines"
        async with aiohttp.ClientSession(base_url=url) as session:
            await session.post("/_gate")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "changefeed", "run", "--processes=2"),
                *(f"--feed=cosmos+{url}{DATABASE}/{feed}", f"--leases={leases}"),
                *(f"--observer={__name__}:Lines", f"--option=path={lines}"),
                *(f"--set={x}" for x in _OF_PROCESSES),
                cwd=_ROOT,
                env=os.environ | {"CHANGEFEED_COSMOS__KEY": EMULATOR_KEY},
                stdout=DEVNULL,
                stderr=DEVNULL,
            )
            try:
                async with asyncio.timeout(_PATIENCE):
                    await _shared(leases, ranges)
                    await session.delete("/_gate")
                    await _all_in(lines)
            finally:
                process.terminate()
                await process.wait()
        return _rate(_read(lines))


async def _shared(leases: str, ranges: int) -> None:
    """Wait until two hosts have as many leases each, but for one."""
    async with open_container(leases, OpenOptions()) as container:
        loads: list[int] = []
        while len(loads) < 2 or max(loads) - min(loads) > 1 or sum(loads) < ranges:
            await asyncio.sleep(0.2)
            owners = Counter(x.owner for x in await container.list() if x.owner is not None)
            loads = [*owners.values()]


async def _all_in(lines: Path) -> None:
    while sum(x.changes for x in _read(lines)) < _ITEMS:  # noqa: ASYNC110 - files have no event
        await asyncio.sleep(0.5)


def _read(lines: Path) -> Sequence[_Batch]:
    if not lines.exists():
        return ()
    words = [x.split() for x in lines.read_text().splitlines()]
    return [_Batch(at=float(at), changes=int(n)) for at, n in words]
