"""A change that kills its process: the next owners deliver with care, until it is put aside."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from random import Random
from typing import Any, cast

import pytest

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.calls import Drain
from changefeed.host.careful_delivery import CarefulDelivery
from changefeed.host.child_start import ChildStart
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.host import Host
from changefeed.host.settings import Settings
from changefeed.host.shared import Process
from changefeed.host.wiring import guest_host
from changefeed.leases.deaths import CARE_FROM, NO_DEATHS
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import Context
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.observers import Bare

KEY = "killer"
LIMIT = 6


class Killer(Bare):
    """Its host dies of each change of one key, and a supervisor starts it again."""

    fleet: Fleet
    deaths: Counter[RangeId]
    came: Counter[str]

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key == KEY:
                Killer.deaths[change.range_id] += 1
                asyncio.get_running_loop().create_task(restart(Killer.fleet, context.host))
                await asyncio.Event().wait()
            Killer.came[change.key] += 1


class Away(Killer):
    """Its own store is away when it first learns that a change was put aside."""

    refused = 0

    async def put_aside(self, _: Context, __: Change) -> None:
        Away.refused += 1
        if Away.refused == 1:
            raise OSError("the store is away")


class Counting:
    """Counts the calls, and how many there were at once."""

    def __init__(self) -> None:
        self.calls = self.now = self.most = 0

    async def process(self, _: Sequence[Change]) -> None:
        self.calls += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1)
        self.now -= 1


class Never(Bare):
    """Is not done with anything, not with reading to the end either."""

    async def open(self, _: Context) -> None:
        await asyncio.Event().wait()

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        """Have nothing to process."""


class Slow(Bare):
    """Has not the time for anything until it is told so; then it fails once on each key."""

    hangs: bool
    failed: set[str]
    at_once: int
    calls: list[list[int]]

    async def process(self, _: Context, changes: Sequence[Change]) -> None:
        if Slow.hangs:
            await asyncio.Event().wait()
        assert not Slow.at_once, "two changes are delivered at once"
        Slow.at_once = len(changes)
        try:
            await asyncio.sleep(0.1)
        finally:
            Slow.at_once = 0
        if changes[0].key not in Slow.failed:
            Slow.failed.add(changes[0].key)
            raise ValueError("once")
        Slow.calls.append([x.sequence for x in changes])


class FarLeases(MemoryLeases):
    async def replace(self, lease: Lease) -> Lease:
        await asyncio.sleep(0.05)
        return await super().replace(lease)


async def restart(fleet: Fleet, name: str) -> None:
    if name not in fleet.hosts or max(Killer.deaths.values()) > LIMIT:
        return
    dead = fleet.hosts[name].incarnation
    await fleet.kill(name)
    start = ChildStart(name=name, incarnation=f"{dead}+", dead={dead: "SIGSEGV"})
    fleet.start(name, start=start)


@pytest.mark.parametrize("hosts", ["a", "abc"])
async def test_a_change_that_kills_is_put_aside_with_the_reason_and_all_else_is_done(
    hosts: str,
) -> None:
    settings: dict[str, Any] = {"observer": {"on_failure": "dead-letter", "checkpoint": 60}}
    async with Fleet(MemoryFeed(6), observer=Killer, settings=settings) as fleet:
        Killer.fleet, Killer.deaths, Killer.came = fleet, Counter(), Counter()
        for name in hosts:
            fleet.start(name)
        await fleet.balanced()
        for n in range(120):
            fleet.append(KEY if n == 60 else f"key-{n}")
        await fleet.caught_up()
        (letter,) = await fleet.dead_letters()
        assert (letter.key, letter.attempts) == (KEY, 4)
        assert letter.failure.text == "killed its process 4 times (SIGSEGV)"
        assert len(fleet.log.times) == 119
        assert max(Killer.deaths.values()) <= LIMIT
        assert max(Killer.came.values()) <= CARE_FROM + 1, "with care, each is stored at once"
        fleet.append(KEY + "-later")
        await fleet.caught_up()
        leases = await fleet.container.list()
        assert {x.deaths.suspect for x in leases} == {None}


async def test_a_change_that_cannot_be_put_aside_yet_kills_nobody_once_care_is_used_up() -> (
    None
):
    settings: dict[str, Any] = {
        "observer": {"on_failure": "dead-letter", "max_unacknowledged": 4}
    }
    async with Fleet(MemoryFeed(1), observer=Away, settings=settings) as fleet:
        Killer.fleet, Killer.deaths, Killer.came = fleet, Counter(), Counter()
        Away.refused = 0
        fleet.start("a")
        await fleet.balanced()
        for n in range(40):
            fleet.append(f"key-{n}" if n else KEY)
        await fleet.caught_up()
        (lease,) = await fleet.container.list()
    assert Away.refused > 1, "it was tried again"
    assert max(Killer.deaths.values()) <= LIMIT
    assert lease.deaths.suspect is None


async def test_care_ends_at_the_end_of_the_range() -> None:
    async with Fleet(MemoryFeed(3)) as fleet:
        for _ in range(3):
            fleet.start("a")
            await asyncio.sleep(40)
            await fleet.kill("a")
            fleet.append("x")
        fleet.start("a")
        await fleet.caught_up()
        await asyncio.sleep(60)
        assert {x.deaths for x in await fleet.container.list()} == {NO_DEATHS}


async def killed_twice_and_mended(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.start("a")
        await asyncio.sleep(60)
        await fleet.kill("a")
    Slow.hangs = False
    fleet.start("a")
    await fleet.caught_up()


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_with_care_each_change_comes_alone_also_behind_one_that_failed(
    concurrency: int,
) -> None:
    settings: dict[str, Any] = {
        "observer": {"concurrency": concurrency, "max_unacknowledged": 8}
    }
    Slow.hangs, Slow.failed, Slow.at_once, Slow.calls = True, set(), 0, []
    async with Fleet(MemoryFeed(1), observer=Slow, settings=settings) as fleet:
        for n in range(8):
            fleet.append("xy"[n % 2])
        await killed_twice_and_mended(fleet)
    assert sorted(Slow.calls) == [[n] for n in range(1, 9)]


@pytest.mark.parametrize("container", [MemoryLeases, FarLeases])
async def test_a_call_with_care_that_ends_with_its_observer_is_made_again(
    container: type[MemoryLeases],
) -> None:
    settings: dict[str, Any] = {"observer": {"concurrency": 2, "retry": {"attempts": 1}}}
    Slow.hangs, Slow.failed, Slow.at_once, Slow.calls = True, set("y"), 0, []
    feed, leases = MemoryFeed(1), container()
    async with Fleet(feed, leases, observer=Slow, settings=settings) as fleet:
        for key in "xy":
            fleet.append(key)
        await killed_twice_and_mended(fleet)
    assert sorted(Slow.calls) == [[1], [2]]


class Owned:
    """A lease of a range of which four owners have died, with one change noted."""

    range_id = RangeId("r0")

    def __init__(self) -> None:
        self.deaths = NO_DEATHS.died(read=7).died(read=7)
        for _ in range(4):
            self.deaths = self.deaths.noting(3).died(read=7)

    async def tell_deaths(self) -> None:
        """Have nowhere to write it."""


async def test_a_change_that_is_blamed_is_not_noted_again_so_other_calls_can_note_theirs() -> (
    None
):
    owned, care = (
        Owned(),
        CarefulDelivery(Retrier(HostEvents(HostName("a")), Random(0)), asyncio.Lock()),
    )
    blames = []
    for n in (3, 4):
        alone = care.alone(make.change(n), cast("Any", owned), Drain(), cast("Any", None))
        with suppress(RangeRefused):
            async with alone as blame:
                blames.append(blame and blame.times)
                raise RangeRefused(owned.range_id, "it is paused")
    assert blames == [4, None]


async def test_a_call_after_the_end_of_care_waits_until_that_end_is_stored() -> None:
    told = list[int]()

    class Ending(Owned):
        async def tell_deaths(self) -> None:
            told.append(self.deaths.care)

    owned, care = (
        Ending(),
        CarefulDelivery(Retrier(HostEvents(HostName("a")), Random(0)), asyncio.Lock()),
    )
    owned.deaths = NO_DEATHS  # in memory: another call was the last that care is for
    alone = care.alone(make.change(4), cast("Any", owned), Drain(), cast("Any", None))
    with suppress(RangeRefused):
        async with alone:
            assert told == [0]
            raise RangeRefused(owned.range_id, "it is paused")


async def test_where_nothing_is_put_aside_the_range_is_paused_with_the_reason() -> None:
    async with Fleet(MemoryFeed(2), observer=Killer) as fleet:
        Killer.fleet, Killer.deaths, Killer.came = fleet, Counter(), Counter()
        fleet.start("a")
        await fleet.balanced()
        for key in ("x", KEY, "y"):
            fleet.append(key)
        await asyncio.sleep(600)
        (paused,) = [x for x in await fleet.container.list() if x.paused is not None]
        reason = paused.paused or ""
        assert "killed its process 4 times (SIGSEGV)" in reason
        assert "observer.on_failure" in reason


@pytest.mark.parametrize("together", [True, False])
async def test_all_hosts_of_a_process_deliver_one_such_change_at_a_time(
    together: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    process, counting = Process(), Counting()
    async with AsyncExitStack() as stack:
        for _ in "ab":
            feed, container = MemoryFeed(1), MemoryLeases()
            (found,) = await feed.ranges()
            dead = HostName("z"), Incarnation("z-1"), NO_DEATHS.died(read=0)
            await container.create(make.lease(found, at="0").taken_by(*dead))
            for _ in range(20):
                feed.append(KEY, range_id=found.id)
            opening = open_host_of(feed, container, counting, process if together else None)
            host = await stack.enter_async_context(opening)
            stack.push_async_callback(host.ended)
            stack.callback(host.stop)
            asyncio.create_task(host.run())  # noqa: RUF006 - it ends with the block
        await asyncio.sleep(300)
    assert (counting.most, counting.calls >= 40) == (1 if together else 2, True)


def open_host_of(
    feed: MemoryFeed, container: MemoryLeases, counting: Counting, process: Process | None
) -> AbstractAsyncContextManager[Host]:
    return guest_host(
        Settings(),
        counting.process,
        feed=lambda: nullcontext(feed),
        leases=lambda: nullcontext(container),
        process=process,
    )


async def test_a_lease_of_a_start_that_died_is_handed_on_with_its_death() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    a = HostName("a")
    for found in await feed.ranges():
        lease = make.lease(found, at="0").taken_by(a, Incarnation("a-1"))
        await container.create(lease.requested_by(HostName("b")))
    async with Fleet(feed, container, observer=Never) as fleet:
        fleet.start("b")
        await asyncio.sleep(2)
        fleet.start("a", start=ChildStart(name="a", incarnation="a-2", dead={"a-1": "SIGKILL"}))
        await fleet.balanced()
        leases = await container.list()
        assert {x.owner for x in leases} == {"a", "b"}
        assert {x.deaths.count for x in leases} == {1}
