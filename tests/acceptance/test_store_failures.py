"""Fleets of real processes over PostgreSQL, Redis and Azure Blob whose servers fail.

As in ``test_failures``: every process appends what it is handed to one file, and the
history is judged by what must hold of it, whatever has happened. Each test has servers of
its own, which it kills, freezes and empties. A failure meets the stores in which it could
end differently; Redis with checkpoints in blobs stands for Redis where both would do.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from changefeed.leases.errors import ContainerError
from tests.acceptance.test_failures import (
    APPENDED,
    CHANGES,
    CRASH,
    FENCE,
    FIRST,
    LONG,
    PAGE,
    PARTS,
    ROOM,
    SHORT,
    append,
    append_the_rest,
    handed,
    made,
    place,
    ranges_since,
    stop,
)
from tests.support.commands import PATIENCE, QUICK, Running, running
from tests.support.cutting_proxy import cutting
from tests.support.fleet_stores import (
    ENVIRONMENT,
    MIXTURE,
    STORES,
    Store,
    in_blobs,
    in_postgres,
    in_redis,
    in_redis_and_blobs,
    in_redis_and_postgres,
    opened,
    store,
)
from tests.support.history import violations
from tests.support.servers import Redis, Server

pytestmark = pytest.mark.real_time
__all__ = ["made", "place", "store"]  # the fixtures

PACE = 0.015
_LONGEST = 3 * PATIENCE  # servers are started while hosts run
ALL_FREE = {None: PARTS}


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


async def until_handed(host: Running, place: Path, count: int = CHANGES) -> None:
    """Wait until so many different changes were handed to some host."""

    async def so() -> bool:
        return len({(x.range_id, x.sequence) for x in handed(place)}) >= count

    await reaches(host, so)


async def until_owned(host: Running, store: Store, wanted: dict[str | None, int]) -> None:
    async def so() -> bool:
        return await owned_by(store) == wanted

    await reaches(host, so)


def host(
    name: str, place: Path, store: Store, *more: str, pace: float = PACE
) -> contextlib.AbstractAsyncContextManager[Running]:
    """Run a host whose observer takes ``pace`` seconds for each change."""
    command = (
        *("run", "--feed=eventlog:log", *store.flags, *QUICK, *(more or SHORT)),
        *(f"--set=feed.page_size={PAGE}", "--set=web.enabled=false"),
        *(() if ROOM in more else (f"--set=observer.max_unacknowledged={PAGE}",)),
        *(f"--name={name}", "--observer=recorder:Recorder", f"--option=pace={pace}"),
    )
    return running(*command, cwd=place, env=ENVIRONMENT)


@asynccontextmanager
async def anna_and_ben(
    place: Path, store: Store, *more: str, pace: float = PACE
) -> AsyncIterator[tuple[Running, Running]]:
    """Run two hosts; begin when each has two ranges, and delivers what was just appended."""
    async with (
        host("anna", place, store, *more, pace=pace) as anna,
        host("ben", place, store, *more, pace=pace) as ben,
    ):
        await until_owned(anna, store, {"anna": 2, "ben": 2})
        await append_the_rest(place)
        await ben.reaches(lambda: ranges_since(place, FIRST) == PARTS)
        yield anna, ben


async def restart(server: Server) -> None:
    """Kill a server, and start it over the data that it had written."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def nothing_is_lost(place: Path, store: Store, *, repeats: int) -> None:
    """All hosts have stopped in order, and so many changes were handed out again at most."""
    assert await owned_by(store) == ALL_FREE
    assert violations(handed(place), APPENDED, repeats=repeats) == []


def all_ranges_go_on(place: Path, lines: int) -> bool:
    return ranges_since(place, lines) == PARTS


# Hosts


@pytest.mark.parametrize("store", [in_postgres, in_blobs, MIXTURE], indirect=True)
async def test_a_killed_host_gets_its_ranges_back_and_goes_on_where_it_was(
    place: Path, store: Store
) -> None:
    async with anna_and_ben(place, store) as (anna, ben):
        anna.process.kill()
        await anna.ends()
        async with host("anna", place, store) as again:
            # The leases of its former self have its name, too.
            await again.says('"event": "lease.acquired"', times=2)
            await until_owned(again, store, {"anna": 2, "ben": 2})
            await until_handed(again, place)
            await stop(again, ben)
    await nothing_is_lost(place, store, repeats=CRASH)


@pytest.mark.parametrize("store", [in_postgres, MIXTURE], indirect=True)
async def test_a_rolling_restart_delivers_nothing_twice(place: Path, store: Store) -> None:
    both: dict[str | None, int] = {"anna": 2, "ben": 2}
    async with AsyncExitStack() as all_of_them:

        async def start(name: str) -> Running:
            made = host(name, place, store, *LONG, pace=0.03)
            return await all_of_them.enter_async_context(made)

        fleet = {name: await start(name) for name in ("anna", "ben")}
        await until_owned(fleet["anna"], store, both)
        third = (CHANGES - FIRST) // 3
        for n, name in enumerate(list(fleet)):
            before = len(handed(place))
            await append(place, FIRST + n * third, FIRST + (n + 1) * third)
            await fleet[name].reaches(partial(all_ranges_go_on, place, before))
            await stop(fleet[name])
            fleet[name] = await start(name)
            await until_owned(fleet[name], store, both)
        await append(place, FIRST + 2 * third, CHANGES)
        await until_handed(fleet["anna"], place)
        await stop(*fleet.values())
    assert len({x.pid for x in handed(place)}) == 4
    await nothing_is_lost(place, store, repeats=0)


# Servers


@pytest.mark.parametrize("store", [in_postgres, in_redis], indirect=True)
async def test_a_server_that_comes_back_and_a_host_that_does_not_lose_nothing(
    place: Path, store: Store
) -> None:
    async with anna_and_ben(place, store) as (anna, ben):
        await restart(store.owner)
        anna.process.kill()
        await until_handed(ben, place)
        await stop(ben)
    await nothing_is_lost(place, store, repeats=CRASH)


@pytest.mark.parametrize("store", [in_blobs, MIXTURE], indirect=True)
async def test_blobs_that_are_away_for_a_while_and_a_host_for_ever_lose_nothing(
    place: Path, store: Store
) -> None:
    """Azurite writes what it keeps when it is asked to stop, and every five seconds."""
    async with anna_and_ben(place, store) as (anna, ben):
        await asyncio.to_thread(store.keeper.stop)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(store.keeper.start)
        anna.process.kill()
        await until_handed(ben, place)
        await stop(ben)
    await nothing_is_lost(place, store, repeats=CRASH)


@pytest.mark.parametrize("store", [in_blobs], indirect=True)
async def test_blobs_that_come_back_as_they_were_some_seconds_ago_lose_nothing(
    place: Path, store: Store
) -> None:
    """As after a restore: what was checkpointed since may come again; nothing is skipped."""
    async with (
        host("anna", place, store) as anna,
        host("ben", place, store) as ben,
    ):
        await until_owned(anna, store, {"anna": 2, "ben": 2})
        await asyncio.sleep(6)  # it has written them
        await append_the_rest(place)
        await ben.reaches(lambda: ranges_since(place, FIRST) == PARTS)
        await restart(store.owner)
        anna.process.kill()
        await until_handed(ben, place)
        await stop(ben)
    await nothing_is_lost(place, store, repeats=CHANGES)


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
    until_the_fence = round(FENCE / pace)
    await nothing_is_lost(place, store, repeats=until_the_fence + CRASH)


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
    await nothing_is_lost(place, store, repeats=CRASH)


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
        await restart(redis)
        await until_handed(ben, place)
        await until_owned(anna, store, {"anna": 2, "ben": 2})
        await stop(anna, ben)
    await nothing_is_lost(place, store, repeats=CRASH)
