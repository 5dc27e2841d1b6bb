"""What fleets of real hosts ask of a store: sharing 1,000 leases, at rest, and under load.

The hosts are in this process and on its one event loop, with the default settings: what
they ask for is what they would ask for anywhere, but the seconds are those of one core.
So ranges with nothing in them are looked at seldom.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from benchmarks.fleets import WatchedFleet
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.container import LeaseContainer
from changefeed.testing.fleet import Sections

from .calls import FLEET, LEASES, fill
from .counting_proxy import Counted
from .measured import Measured
from .places import Ports, Store, counted_place

_HOSTS, _AT_REST, _PATIENCE = 16, 10.0, 60.0
_BUSY_LEASES, _BUSY_HOSTS, _BUSY = 48, 2, 6.0
_SELDOM: Sections = {"feed": {"poll_interval": 30.0}, "timing": {"lag_interval": 300.0}}
_CHANGES_A_RANGE = 5
_KEPT_LEASES, _KEPT_HOSTS, _SETTLES = 96, 4, 20.0
_KEPT = 60.0  # what comes once a minute is in it once

_Clients = Callable[[], Awaitable[LeaseContainer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    calls: int
    requests: int
    bytes: int
    conflicts: int
    failures: int

    def __sub__(self, other: "_Spent") -> "_Spent":
        return _Spent(
            calls=self.calls - other.calls,
            requests=self.requests - other.requests,
            bytes=self.bytes - other.bytes,
            conflicts=self.conflicts - other.conflicts,
            failures=self.failures - other.failures,
        )


async def measured(store: Store, ports: Ports) -> Sequence[Measured]:
    return [
        *await _shared(store, ports),
        *await _kept_by_heartbeats(store, ports),
        *await _under_load(store, ports),
    ]


async def _shared(store: Store, ports: Ports) -> Sequence[Measured]:
    """Start 16 hosts over 1,000 leases at once; then leave them alone."""
    async with _fleet(store, ports, FLEET, LEASES, _SELDOM) as (hosts, counts, clients):
        began = time.perf_counter()
        await _start(hosts, clients, _HOSTS)
        with suppress(TimeoutError):  # how far they have come then is in the results
            async with asyncio.timeout(_PATIENCE):
                await hosts.until_even(LEASES)
        seconds = time.perf_counter() - began
        misplaced = _misplaced(hosts)
        balanced = _spent(hosts, counts)
        rounds = max(x.calls["list"] for x in hosts.watched.values())
        await asyncio.sleep(1.0)
        rest = await _over(hosts, counts, _AT_REST)
        began = time.perf_counter()
        await hosts.stop_all()
        stopping = time.perf_counter() - began
        left = await hosts.left_to_expire()
    return [
        Measured(name="balance.seconds", value=seconds, unit="s"),
        Measured(
            name="balance.misplaced", value=misplaced, unit="leases in the end", exactly=0
        ),
        Measured(name="balance.rounds", value=rounds, unit="listings of one host"),
        Measured(name="balance.conflicts", value=balanced.conflicts, unit="lost writes"),
        Measured(
            name="balance.failures", value=balanced.failures, unit="writes without an answer"
        ),
        Measured(name="balance.moves", value=hosts.acquisitions, unit="acquisitions"),
        *_per_minute("at_rest", rest, LEASES, _AT_REST, of="lease"),
        Measured(name="at_rest.conflicts", value=rest.conflicts, unit="lost writes", exactly=0),
        Measured(name="stop.seconds", value=stopping, unit="s"),
        Measured(name="stop.left_to_expire", value=left, unit="leases"),
    ]


async def _kept_by_heartbeats(store: Store, ports: Ports) -> Sequence[Measured]:
    """Leave four hosts alone whose heartbeats keep their leases: what each of them asks for."""
    async with _fleet(store, ports, "kept", _KEPT_LEASES, _SELDOM) as made:
        hosts, counts, clients = made
        await _start(hosts, clients, _KEPT_HOSTS)
        async with asyncio.timeout(_PATIENCE):
            await hosts.until_even(_KEPT_LEASES)
        await asyncio.sleep(_SETTLES)
        rest = await _over(hosts, counts, _KEPT)
    return _per_minute("by_heartbeats", rest, _KEPT_HOSTS, _KEPT, of="host")


async def _under_load(store: Store, ports: Ports) -> Sequence[Measured]:
    """Two hosts, with some changes in each range between any two looks at it."""
    async with _fleet(store, ports, "busy", _BUSY_LEASES, {}) as (hosts, counts, clients):
        await _start(hosts, clients, _BUSY_HOSTS)
        async with asyncio.timeout(_PATIENCE):
            await hosts.until_even(_BUSY_LEASES)
        feed = hosts.feed
        assert isinstance(feed, MemoryFeed), "it was made so"
        producing = asyncio.create_task(_produce(feed))
        await asyncio.sleep(1.5)
        before = _checkpoints(hosts)
        busy = await _over(hosts, counts, _BUSY)
        checkpoints = _checkpoints(hosts) - before
        producing.cancel()
    return [
        *_per_minute("load", busy, _BUSY_LEASES, _BUSY, of="lease"),
        Measured(
            name="load.checkpoints",
            value=checkpoints / _BUSY_LEASES / _BUSY * 60,
            unit="checkpoints/lease/min",
        ),
        Measured(name="load.conflicts", value=busy.conflicts, unit="lost writes", exactly=0),
    ]


@asynccontextmanager
async def _fleet(
    store: Store, ports: Ports, name: str, leases: int, settings: Sections
) -> AsyncIterator[tuple[WatchedFleet, Sequence[Counted], _Clients]]:
    async with (
        counted_place(store, ports, name) as (place, counts),
        place.open() as container,
        AsyncExitStack() as opened,
        WatchedFleet(leases, container, settings) as hosts,
    ):
        if not await container.list():
            await fill(container, hosts.feed)

        async def clients() -> LeaseContainer:
            return await opened.enter_async_context(place.open())

        yield hosts, counts, clients


async def _start(hosts: WatchedFleet, clients: _Clients, count: int) -> None:
    """Start hosts at once, each with a client of its own, as they are in processes."""
    for n, client in enumerate([await clients() for _ in range(count)]):
        hosts.start_with(f"h{n}", client)


def _misplaced(hosts: WatchedFleet) -> int:
    """Count the leases that no host has, or one that has its share without them."""
    share = -(-LEASES // _HOSTS)
    return LEASES - sum(min(len(x.leases), share) for x in hosts.hosts.values())


async def _produce(feed: MemoryFeed) -> None:
    n = 0
    while True:
        for _ in range(_BUSY_LEASES * _CHANGES_A_RANGE):
            feed.append(f"key-{n}")
            n += 1
        await asyncio.sleep(0.5)


async def _over(hosts: WatchedFleet, counts: Sequence[Counted], seconds: float) -> _Spent:
    before = _spent(hosts, counts)
    await asyncio.sleep(seconds)
    return _spent(hosts, counts) - before


def _spent(hosts: WatchedFleet, counts: Sequence[Counted]) -> _Spent:
    return _Spent(
        calls=sum(x.calls.total() for x in hosts.watched.values()),
        requests=sum(x.calls for x in counts),
        bytes=sum(x.bytes for x in counts),
        conflicts=sum(x.conflicts for x in hosts.watched.values()),
        failures=sum(x.failures for x in hosts.watched.values()),
    )


def _checkpoints(hosts: WatchedFleet) -> int:
    total: Counter[str] = sum((x.calls for x in hosts.watched.values()), Counter())
    return total["checkpoint"]


def _per_minute(
    name: str, spent: _Spent, count: int, seconds: float, *, of: str
) -> Sequence[Measured]:
    share = 60.0 / seconds / count
    amounts = {"calls": spent.calls, "requests": spent.requests, "bytes": spent.bytes}
    return [
        Measured(name=f"{name}.{what}", value=n * share, unit=f"{what}/{of}/min")
        for what, n in amounts.items()
    ]
