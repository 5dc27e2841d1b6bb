"""What one client sees: the time of each call, and how many it gets done side by side."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from changefeed.feeds.feed import Feed, FeedRange
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.settings import LeaseSettings
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Incarnation, Lease, require_position

from .measured import Measured
from .places import Ports, Store, counted_place

LEASES = 1000
FLEET = "all"
_LISTS, _CALLS = 5, 200
_WRITERS, _SECONDS = 32, 2.0
_A, _A1 = HostName("a"), Incarnation("a-1")


async def measured(store: Store, ports: Ports) -> Sequence[Measured]:
    with TemporaryDirectory(prefix="bench-") as folder:
        async with store.place(FLEET, Path(folder), ports).open() as leases:
            await fill(leases, MemoryFeed(LEASES))
            listing = await _timed(_LISTS, lambda _: leases.list())
            owned = await _own_some(leases)
            latency = await _one_after_the_other(leases, owned[0])
            rate = await _side_by_side(leases, owned[1:])
            await _release(leases)
    return [
        *await _sizes(store, ports),
        _ms("list_1000.p50", listing, 0.5),
        *(
            _ms(f"{what}.{name}", seconds, share)
            for what, seconds in latency.items()
            for name, share in (("p50", 0.5), ("p99", 0.99))
        ),
        Measured(name="renewals", value=rate, unit="renewals/s"),
        Measured(
            name="leases_sustained",
            value=rate * LeaseSettings().timing.renew_interval,
            unit="leases of one client",
        ),
    ]


async def _release(leases: LeaseContainer) -> None:
    """Leave the leases to the fleet that is measured next: to create them takes long."""
    for lease in await leases.list():
        if lease.owner is not None:
            await leases.replace(lease.released())


async def fill(leases: LeaseContainer, feed: Feed) -> None:
    """Create a lease for each range of the feed, at its beginning."""
    gate = asyncio.Semaphore(16)

    async def create(found: FeedRange) -> None:
        async with gate:
            start = await feed.start(found, "beginning")
            await leases.create(Lease(range=found, checkpoint=Checkpoint(start)))

    await asyncio.gather(*map(create, await feed.ranges()))


async def _own_some(leases: LeaseContainer) -> Sequence[Lease]:
    """Acquire a lease for each writer, and one more."""
    found = await leases.list()
    assert len(found) == LEASES, f"{len(found)} leases are listed, not {LEASES}"
    return [await leases.acquire(x.taken_by(_A, _A1)) for x in found[: _WRITERS + 1]]


async def _one_after_the_other(
    leases: LeaseContainer, lease: Lease
) -> dict[str, Sequence[float]]:
    start = require_position(lease)

    async def checkpoint(_: int) -> None:
        nonlocal lease
        lease = await leases.checkpoint(lease.advanced_to(start))

    async def renew(_: int) -> None:
        nonlocal lease
        lease = await leases.replace(lease.without_position().renewed())

    return {
        "checkpoint": await _timed(_CALLS, checkpoint),
        "renewal": await _timed(_CALLS, renew),
    }


async def _side_by_side(leases: LeaseContainer, owned: Sequence[Lease]) -> float:
    """Return how many renewals a second so many writers get done together."""
    done = 0
    began = time.perf_counter()

    async def write(lease: Lease) -> None:
        nonlocal done
        while time.perf_counter() - began < _SECONDS:
            lease = await leases.replace(lease.without_position().renewed())
            done += 1

    await asyncio.gather(*map(write, owned))
    return done / (time.perf_counter() - began)


async def _sizes(store: Store, ports: Ports) -> Sequence[Measured]:
    """Count the requests and bytes of one listing, in a client that has listed before."""
    if not ports:
        return [
            Measured(name="list_1000.requests", value=0, unit="requests"),
            Measured(name="list_1000.bytes", value=0, unit="bytes"),
        ]
    async with (
        counted_place(store, ports, FLEET) as (place, counts),
        place.open() as leases,
    ):
        await leases.list()
        before = [(x.calls, x.bytes) for x in counts]
        await leases.list()
        after = [(x.calls, x.bytes) for x in counts]
    requests, size = (
        sum(y[n] - x[n] for x, y in zip(before, after, strict=True)) for n in (0, 1)
    )
    return [
        Measured(name="list_1000.requests", value=requests, unit="requests", exactly=1),
        Measured(name="list_1000.bytes", value=size, unit="bytes"),
    ]


async def _timed(times: int, call: Callable[[int], Awaitable[object]]) -> Sequence[float]:
    """Return the seconds of each call, sorted."""
    taken = []
    for n in range(times):
        began = time.perf_counter()
        await call(n)
        taken.append(time.perf_counter() - began)
    return sorted(taken)


def _ms(name: str, seconds: Sequence[float], share: float) -> Measured:
    value = seconds[int(len(seconds) * share)] * 1000
    return Measured(name=name, value=value, unit="ms")
