"""Fleets of real processes over PostgreSQL, Redis and Azure Blob whose servers fail.

As in ``test_failures``: every process appends what it is handed to one file, and the
history is judged by what must hold of it, whatever has happened. Each test has servers of
its own, which it kills, freezes and empties.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import open_container, open_stores
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerError
from tests.acceptance.test_failures import (
    APPENDED,
    CHANGES,
    CRASH,
    FENCE,
    FIRST,
    PAGE,
    PARTS,
    ROOM,
    SHORT,
    append_the_rest,
    handed,
    made,
    place,
    ranges_since,
    stop,
)
from tests.support.commands import PATIENCE, QUICK, Running, running
from tests.support.cutting_proxy import cutting
from tests.support.history import violations
from tests.support.servers import Azurite, Missing, Postgres, Redis, Server

pytestmark = pytest.mark.real_time
__all__ = ["made", "place"]  # the fixtures

PACE = 0.015
_LONGEST = 3 * PATIENCE  # servers are started while hosts run


@dataclass(frozen=True, kw_only=True)
class Store:
    """Servers, and the addresses of leases on them: one, or ownership and checkpoints."""

    servers: list[Server]
    addresses: list[str]

    @property
    def flags(self) -> list[str]:
        if len(self.addresses) == 1:
            return [f"--leases={self.addresses[0]}", "--create-lease-container"]
        names = ("leases.ownership", "leases.checkpoints")
        both = zip(names, self.addresses, strict=True)
        return ["--create-lease-container", *(f"--set={x}={y}" for x, y in both)]

    @property
    def owner(self) -> Server:
        """The server that keeps ownership."""
        return self.servers[0]

    def at(self, port: int) -> "Store":
        """The same, with ownership reached through another port."""
        old = f"127.0.0.1:{self.owner.port}"
        moved = [x.replace(old, f"127.0.0.1:{port}") for x in self.addresses]
        return Store(servers=self.servers, addresses=moved)


def in_postgres() -> Store:
    server = Postgres("fsync=off")
    return Store(servers=[server], addresses=[server.url])


def in_redis() -> Store:
    server = Redis("--appendonly", "yes", "--appendfsync", "always")
    return Store(servers=[server], addresses=[server.url])


def in_blobs() -> Store:
    server = Azurite()
    return Store(servers=[server], addresses=[f"blob+{server.endpoint}/leases/fleet"])


def in_redis_and_blobs() -> Store:
    owner, keeper = Redis(), Azurite()
    addresses = [owner.url, f"blob+{keeper.endpoint}/leases/fleet"]
    return Store(servers=[owner, keeper], addresses=addresses)


def in_redis_and_postgres() -> Store:
    owner, keeper = Redis(), Postgres("fsync=off")
    return Store(servers=[owner, keeper], addresses=[owner.url, keeper.url])


STORES = [in_postgres, in_redis, in_blobs]


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    make: Callable[[], Store] = request.param
    try:
        store = make()
    except Missing as missing:
        pytest.skip(str(missing))
    with contextlib.ExitStack() as running_servers:
        for server in store.servers:
            running_servers.callback(server.discard)
            server.start()
        yield store


ENVIRONMENT = {"CHANGEFEED_BACKENDS__BLOB__KEY": Azurite.key}


def opened(store: Store) -> contextlib.AbstractAsyncContextManager[LeaseContainer]:
    options = OpenOptions(create=True, backends={"blob": {"key": Azurite.key}})
    if len(store.addresses) == 1:
        return open_container(store.addresses[0], options)
    return open_stores(store.addresses[0], store.addresses[1], options)


async def owned_by(store: Store) -> dict[str | None, int]:
    """Return how many leases each host owns; nothing while that cannot be seen."""
    try:
        async with asyncio.timeout(5), opened(store) as leases:
            return dict(Counter(x.owner for x in await leases.list()))
    except (ContainerError, TimeoutError):
        return {}


async def reaches(host: Running, state: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_LONGEST):
        while not await state():
            assert host.process.returncode is None, host.said
            await asyncio.sleep(0.1)


async def until_handed(host: Running, place: Path) -> None:
    """Wait until every change was handed to some host."""

    async def so() -> bool:
        return len({(x.range_id, x.sequence) for x in handed(place)}) >= CHANGES

    await reaches(host, so)


async def until_owned(host: Running, store: Store, wanted: dict[str | None, int]) -> None:
    async def so() -> bool:
        return await owned_by(store) == wanted

    await reaches(host, so)


@asynccontextmanager
async def anna_and_ben(
    place: Path, store: Store, *more: str, pace: float = PACE
) -> AsyncIterator[tuple[Running, Running]]:
    """Run two hosts; begin when each has two ranges, and delivers what was just appended."""
    async with AsyncExitStack() as both:

        async def start(name: str) -> Running:
            command = (
                *("run", "--feed=eventlog:log", *store.flags, *QUICK, *SHORT, *more),
                *(f"--set=feed.page_size={PAGE}", "--set=web.enabled=false"),
                *(() if ROOM in more else (f"--set=observer.max_unacknowledged={PAGE}",)),
                *(f"--name={name}", "--observer=recorder:Recorder", f"--option=pace={pace}"),
            )
            return await both.enter_async_context(running(*command, cwd=place, env=ENVIRONMENT))

        anna, ben = await start("anna"), await start("ben")
        await until_owned(anna, store, {"anna": 2, "ben": 2})
        await append_the_rest(place)
        await ben.reaches(lambda: ranges_since(place, FIRST) == PARTS)
        yield anna, ben


@pytest.mark.parametrize("store", [in_postgres, in_redis], indirect=True)
async def test_a_server_that_comes_back_and_a_host_that_does_not_lose_nothing(
    place: Path, store: Store
) -> None:
    async with anna_and_ben(place, store) as (anna, ben):
        await asyncio.to_thread(store.owner.kill)
        await asyncio.to_thread(store.owner.start)
        anna.process.kill()
        await until_handed(ben, place)
        await stop(ben)
    assert violations(handed(place), APPENDED, repeats=CRASH) == []


@pytest.mark.parametrize("store", STORES, indirect=True)
async def test_a_server_frozen_for_longer_than_the_leases_stops_all_and_loses_nothing(
    place: Path, store: Store
) -> None:
    pace = 0.03
    async with anna_and_ben(place, store, ROOM, pace=pace) as (anna, ben):
        store.owner.freeze()
        await asyncio.sleep(FENCE + 0.5)
        fenced = handed(place)
        await asyncio.sleep(1.5)
        assert handed(place) == fenced  # no host may act on a lease by now
        store.owner.thaw()
        await until_handed(ben, place)
        await stop(anna, ben)
    assert len(fenced) < CHANGES  # it met them at it
    assert await owned_by(store) == {None: PARTS}
    until_the_fence = round(FENCE / pace)
    assert violations(handed(place), APPENDED, repeats=until_the_fence + CRASH) == []


@pytest.mark.parametrize("store", STORES, indirect=True)
async def test_writes_whose_answers_are_lost_lose_nothing(place: Path, store: Store) -> None:
    async with cutting(store.owner.port) as proxy:
        through = store.at(proxy.port)
        async with anna_and_ben(place, through) as (anna, ben):
            cuts = asyncio.create_task(proxy.cut_again_and_again(0.15))
            await until_handed(ben, place)
            cuts.cancel()
            await stop(anna, ben)
        assert proxy.cuts > 5
    assert violations(handed(place), APPENDED, repeats=CRASH) == []


@pytest.mark.parametrize("store", [in_redis_and_blobs, in_redis_and_postgres], indirect=True)
async def test_ownership_that_redis_forgets_is_found_again_and_checkpoints_stay(
    place: Path, store: Store
) -> None:
    """The server is flushed while hosts run, and then dies and comes back empty."""
    async with anna_and_ben(place, store) as (anna, ben):
        redis = store.owner
        assert isinstance(redis, Redis)
        assert redis.ask("FLUSHALL").startswith("+OK")
        await until_owned(anna, store, {"anna": 2, "ben": 2})
        await asyncio.to_thread(redis.kill)
        await asyncio.to_thread(redis.start)
        await until_handed(ben, place)
        await until_owned(anna, store, {"anna": 2, "ben": 2})
        await stop(anna, ben)
    assert violations(handed(place), APPENDED, repeats=CRASH) == []
