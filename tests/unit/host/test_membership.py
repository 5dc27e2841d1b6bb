"""A host's own record: who may have a name, and what others see of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random

import pytest
from msgspec.structs import replace

from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.membership import Membership
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet import LeaseListing
from changefeed.leases.lease import HostName, Incarnation, Member, Version
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import NameTaken, StoreUnavailable
from changefeed.stores.store import WHOLE
from changefeed.testing.proxies import FailingCall, proxied
from tests.support import make
from tests.support.calls import Calls
from tests.support.looking import now

A = HostName("a")
OnBeat = Callable[[float], None]
LOST = StoreUnavailable("lost on its way")
BEAT = 10.0
WATCHED = 1.5 * BEAT + 10.0
"""A heartbeat that is a quarter late and gets no answer, and the next one a quarter later."""


def membership(
    container: LeaseContainer, incarnation: str, on_beat: OnBeat = lambda _: None
) -> Membership:
    events = HostEvents(A)
    loop = asyncio.get_running_loop()
    return Membership(
        container,
        Member(name=A, incarnation=Incarnation(incarnation), address="http://a"),
        make.rules(),
        events=events,
        retrier=Retrier(events, Random(1)),
        wall=lambda: 1_700_000_000.0 + loop.time(),
        clock=loop.time,
        on_beat=on_beat,
    )


@asynccontextmanager
async def living(member: Membership) -> AsyncIterator[None]:
    """Keep it beating until the block is left."""
    beating = asyncio.create_task(member.keep_alive())
    try:
        yield
    finally:
        beating.cancel()


async def joined(
    container: LeaseContainer, incarnation: str = "one", on_beat: OnBeat = lambda _: None
) -> Membership:
    member = membership(container, incarnation, on_beat)
    await member.join()
    return member


async def record(container: MemoryLeases) -> Member:
    (member,) = await container.members()
    return member


async def test_a_name_belongs_to_one_living_process_though_a_heartbeat_of_it_is_late() -> None:
    container = MemoryLeases()
    first = await joined(container)
    joining = asyncio.create_task(joined(container, "two"))
    await asyncio.sleep(12)  # as after one that failed
    async with living(first):
        with pytest.raises(NameTaken):
            await joining
        assert (await record(container)).incarnation == "one"


async def test_the_record_that_a_crash_left_behind_is_taken_over_when_it_stands_still() -> None:
    container = MemoryLeases()
    await joined(container, "dead")
    await joined(container, "next")
    assert WATCHED <= now() < WATCHED + 2.5
    assert (await record(container)).incarnation == "next"


async def test_a_host_whose_own_record_was_written_unanswered_knows_it() -> None:
    container = MemoryLeases()
    cut = FailingCall(LOST, at=1, after=True, only=lambda x: x == "put_member")
    await joined(proxied(container, cut))
    assert now() < 1  # it did not wait for itself to die
    assert (await record(container)).incarnation == "one"


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
async def test_a_heartbeat_whose_answer_was_lost_is_followed_by_the_next(
    *, after: bool
) -> None:
    container = MemoryLeases()
    cut = FailingCall(LOST, at=2, after=after, only=lambda x: x == "put_member")
    async with living(await joined(proxied(container, cut))):
        await asyncio.sleep(BEAT + 1)
        before = (await record(container)).sign_of_life
        await asyncio.sleep(BEAT / 2)  # the next one comes soon
        assert (await record(container)).sign_of_life != before


async def test_a_record_that_only_a_forgetful_store_shows_takes_no_name() -> None:
    container = MemoryLeases()
    await joined(container, "before")
    (forgotten,) = await container.members()
    await container.remove_member(forgotten)
    await asyncio.sleep(1)
    async with living(await joined(container, "now")):
        await asyncio.sleep(2 * BEAT)
        await container.remove_member(await record(container))
        await container.put_member(replace(forgotten, version=Version("")))
        await asyncio.sleep(5 * BEAT)
        assert (await record(container)).incarnation == "now"


async def test_a_host_that_wakes_up_finds_its_name_taken() -> None:
    container = MemoryLeases()
    frozen = await joined(container, "frozen")
    await joined(container, "next")
    with pytest.raises(NameTaken, match="incarnation next"):
        await asyncio.wait_for(frozen.keep_alive(), 60)
    with pytest.raises(NameTaken):
        await frozen.announce_stopping()
    await frozen.leave()
    assert (await record(container)).incarnation == "next"


async def test_a_host_that_stops_says_so_and_leaves_nothing() -> None:
    container = MemoryLeases()
    member = await joined(container)
    await member.announce_stopping()
    assert (await record(container)).stopping
    await member.leave()
    assert await container.members() == []


# Heartbeats that go along with listings


async def started(
    container: LeaseContainer, on_beat: OnBeat = lambda _: None
) -> tuple[Membership, Callable[[], Coroutine[None, None, None]]]:
    """Return a member, and what lists its fleet, as has just been done."""
    member = await joined(container, on_beat=on_beat)
    listing = LeaseListing(member.list_fleet, now)

    async def list_fleet() -> None:
        await listing.list_fleet()

    await list_fleet()
    return member, list_fleet


async def test_a_heartbeat_that_is_refused_has_all_listed_the_next_time() -> None:
    container = MemoryLeases()
    member, _ = await started(container)
    await asyncio.sleep(8)
    assert (await member.list_fleet("1")).token != WHOLE
    await container.put_member(await record(container))
    await asyncio.sleep(8)
    assert (await member.list_fleet("1")).token == WHOLE


async def test_a_heartbeat_along_with_a_listing_counts_from_when_it_was_sent() -> None:
    calls, beats = Calls(), list[float]()
    member, list_fleet = await started(proxied(MemoryLeases(), calls), beats.append)
    async with living(member):
        await asyncio.sleep(8)
        calls.lasting["list_fleet"] = calls.answered_after["list_fleet"] = 1.0
        await list_fleet()
        assert beats == [0, 8]


async def test_a_record_that_others_write_again_and_again_is_no_heartbeat_and_is_told() -> None:
    """As hosts do that take a host for dead, each for the leases that it wants."""
    container = MemoryLeases()

    async def fenced() -> None:
        for found in await container.members():
            await container.put_member(found)

    member, _ = await started(proxied(container, Calls(first={"put_member": fenced})))
    before = (await record(container)).heartbeats
    with pytest.raises(StoreUnavailable):
        await member.announce_stopping()
    assert (await record(container)).heartbeats == before


async def test_a_listing_with_a_namesake_ends_the_host_before_it_acts_on_it() -> None:
    container = MemoryLeases()
    _, list_fleet = await started(container)
    await container.remove_member(await record(container))  # it was away, and seemed dead
    await joined(container, "next")
    with pytest.raises(NameTaken, match="incarnation next"):
        await list_fleet()
