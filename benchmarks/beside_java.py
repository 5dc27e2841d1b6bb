"""Our host beside Azure's processor for Java, on the same endpoint and the same changes.

Both read an emulator in a process of its own, with 1, 4 and 16 ranges, in pages of up to
1000; both hand their observers parsed bodies and keep their leases in the same emulator;
both are warmed up first, and then read in turns. Timed is what comes after the first page,
to the last change, so that neither start-up nor the waiting for leases counts; and, for
itself, all from the start to the last change. It needs Java and Maven.
"""

import asyncio
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from statistics import median
from time import perf_counter

from azure.cosmos import PartitionKey

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAccess, CosmosAddress
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.feeds.feed import Change
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import ObserverSettings
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import HostName
from changefeed.observers.adapters import adapt
from changefeed.observers.maker import ObserverMaker

from .endpoint import DATABASE, client_of, endpoint, make_container
from .java_process import ask, java_process
from .one_host import settings_of
from .result import Result

_ITEMS = 32_000
_ROUNDS = 5  # after one to warm up
_RANGES = (1, 4, 16)
_QUICK = {"feed": {"poll_interval": 0.1}, "leases": {"expiration": 3.0}}
_LEASE_KEY = PartitionKey("/id")
_fresh = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Changes a second after the first page, and seconds from the start to the last."""

    rate: float
    whole: float


class _Race:
    """An observer that parses each change, and times them."""

    def __init__(self) -> None:
        self.all_here = asyncio.Event()
        self._began = perf_counter()
        self._first, self._last = 0.0, 0.0
        self._counted, self._early = 0, 0

    @property
    def run(self) -> _Run:
        rate = (self._counted - self._early) / (self._last - self._first)
        return _Run(rate=rate, whole=self._last - self._began)

    async def process(self, changes: Sequence[Change]) -> None:
        for change in changes:
            change.value()
        self._last = perf_counter()
        self._counted += len(changes)
        if self._early == 0:
            self._first, self._early = self._last, self._counted
        if self._counted >= _ITEMS:
            self.all_here.set()


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    results: list[Result] = []
    async with endpoint() as url:
        for ranges in _RANGES:
            await make_container(url, f"of-{ranges}", ranges=ranges, items=_ITEMS)
        async with client_of(url) as client:
            database = client.get_database_client(DATABASE)
            await database.create_container("leases", _LEASE_KEY, default_ttl=-1)
        async with java_process(url, "Race", DATABASE) as process:
            for ranges in _RANGES:
                results += await _of(url, process, ranges)
    return results


async def _of(url: str, process: Process, ranges: int) -> Sequence[Result]:
    name = f"of-{ranges}"
    rounds = [
        (await _by_us(url, name), await _by_java(process, name)) for _ in range(_ROUNDS + 1)
    ][1:]
    host, java_ = f"beside-java.{ranges}.host", f"beside-java.{ranges}.java"
    return [
        Result(name=java_, value=median(x.rate for _, x in rounds), unit="changes/s"),
        Result(
            name=host,
            value=median(x.rate for x, _ in rounds),
            unit="changes/s",
            against=java_,
            ratio=median(x.rate / y.rate for x, y in rounds),
        ),
        Result(name=f"{java_}.whole", value=median(x.whole for _, x in rounds), unit="s"),
        Result(
            name=f"{host}.whole",
            value=median(x.whole for x, _ in rounds),
            unit="s",
            against=f"{java_}.whole",
            ratio=median(x.whole / y.whole for x, y in rounds),
        ),
    ]


async def _by_us(url: str, name: str) -> _Run:
    address = CosmosAddress(endpoint=url, database=DATABASE, container=name)
    leases = f"cosmos+{url}{DATABASE}/leases?prefix=ours-{next(_fresh)}"
    async with (
        open_cosmos(address, CosmosAccess()) as feed,
        open_container(leases, OpenOptions()) as container,
    ):
        events = HostEvents(HostName("bench"))
        race = _Race()
        host = Host(
            settings_of(_QUICK),
            feed=feed,
            container=container,
            make_observer=ObserverMaker(
                adapt(race.process), ObserverSettings(), events, Random(1)
            ),
        )
        running = asyncio.create_task(host.run())
        await race.all_here.wait()
        host.stop()
        await running
    return race.run


async def _by_java(process: Process, name: str) -> _Run:
    found = await ask(process, f"{name} {_ITEMS} theirs-{next(_fresh)}-")
    return _Run(rate=found["changes"] / found["seconds"], whole=found["whole"])
