"""Stores of leases side by side: what a call costs, and what a fleet at rest sends.

One client over a real server on this machine, or a file; no hosts. Bytes are counted on the
way, by a proxy before the server, so SQLite has none. Stores whose server is not installed
are left out.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.host.settings import LeaseSettings
from changefeed.leases.addresses import open_container
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Incarnation, Lease
from tests.support import servers
from tests.support.counting_proxy import Counted, counting

from .result import Result

_LEASES, _CALLS, _LISTS = 1000, 100, 10
_A, _A1 = HostName("a"), Incarnation("a-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """``address`` is that of a container on a server at a port."""

    name: str
    port: Callable[[], int] | None
    address: Callable[[int], str]


def measure() -> Sequence[Result]:
    """Start each server, and end it."""
    try:
        return [x for store in _stores() for x in _measured(store)]
    finally:
        servers.stop_all()


def _stores() -> Sequence[_Store]:
    account = servers.Azurite.account
    return (
        _Store(name="sqlite", port=None, address=lambda _: "sqlite:leases.db"),
        _Store(
            name="postgres",
            port=lambda: servers.postgres().port,
            address=lambda port: f"postgresql://postgres@127.0.0.1:{port}/postgres",
        ),
        _Store(
            name="redis",
            port=lambda: servers.redis().port,
            address=lambda port: f"redis://127.0.0.1:{port}/0",
        ),
        _Store(
            name="blob",
            port=lambda: servers.azurite().port,
            address=lambda port: f"blob+http://127.0.0.1:{port}/{account}/bench/fleet",
        ),
    )


def _measured(store: _Store) -> Sequence[Result]:
    try:
        port = None if store.port is None else store.port()
    except servers.Missing:
        return ()
    return asyncio.run(_with_container(store, port))


async def _with_container(store: _Store, port: int | None) -> Sequence[Result]:
    async with _opened(store, port) as (leases, counted):
        listed = await _filled(leases)
        lists = await _timed(_LISTS, lambda _: leases.list())
        before = counted.bytes
        await leases.list()
        per_list = counted.bytes - before
        held = [await leases.acquire(listed.taken_by(_A, _A1))]

        async def renew(_: int) -> None:
            held[0] = await leases.replace(held[0].without_continuation().renewed())

        async def checkpoint(n: int) -> None:
            there = Continuation(f"position-{n:08}")
            held[0] = await leases.checkpoint(held[0].advanced_to(there))

        before = counted.bytes
        renewals = await _timed(_CALLS, renew)
        per_renewal = (counted.bytes - before) / _CALLS
        held[0] = await _whole(leases)
        checkpoints = await _timed(_CALLS, checkpoint)
    seconds = {"list": lists, "renew": renewals, "checkpoint": checkpoints}
    return _results(store.name, seconds, per_list, per_renewal)


async def _filled(leases: LeaseContainer) -> Lease:
    gate = asyncio.Semaphore(16)

    async def create(n: int) -> None:
        async with gate:
            place = FeedRange(id=RangeId(f"r{n:04}"), low=f"{n:04}", high=f"{n + 1:04}")
            await leases.create(Lease(range=place, continuation=Continuation("start")))

    await asyncio.gather(*map(create, range(_LEASES)))
    found = await leases.list()
    assert len(found) == _LEASES, "all of them in one call"
    return next(x for x in found if x.range_id == "r0000")


async def _whole(leases: LeaseContainer) -> Lease:
    found = await leases.read(RangeId("r0000"))
    assert found is not None, "it was just renewed"
    return found


async def _timed(times: int, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Return the seconds of each call, sorted."""
    taken = []
    for n in range(times):
        began = time.perf_counter()
        await call(n)
        taken.append(time.perf_counter() - began)
    return sorted(taken)


def _results(
    store: str, seconds: Mapping[str, Sequence[float]], per_list: int, per_renewal: float
) -> Sequence[Result]:
    settings = LeaseSettings()
    renewals = 60.0 / settings.renew_interval
    lists = 60.0 / settings.balance_interval / _LEASES
    at_rest = renewals * per_renewal + lists * per_list

    def result(what: str, value: float, unit: str) -> Result:
        return Result(name=f"stores.{store}.{what}", value=value, unit=unit)

    return [
        *(
            result(f"{what}_{name}", taken[int(len(taken) * share)] * 1000, "ms")
            for what, taken in seconds.items()
            for name, share in (("p50", 0.5), ("p99", 0.99))
        ),
        result("bytes_a_renewal", per_renewal, "bytes"),
        result("bytes_at_rest", at_rest, "bytes/lease/min"),
    ]


@asynccontextmanager
async def _opened(
    store: _Store, port: int | None
) -> AsyncIterator[tuple[LeaseContainer, Counted]]:
    sections = {"blob": {"key": servers.Azurite.key}}
    options = OpenOptions(create=True, backends=sections)
    if port is None:
        with TemporaryDirectory() as folder:
            address = f"sqlite:{Path(folder) / 'leases.db'}"
            async with open_container(address, options) as leases:
                yield leases, Counted()
        return
    async with (
        counting(port) as counted,
        open_container(store.address(counted.port), options) as leases,
    ):
        yield leases, counted
