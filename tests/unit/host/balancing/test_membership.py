"""A host's own record: who may have a name, and what others see of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from changefeed.host.balancing.membership import Membership, NameTaken
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.settings import LeaseSettings
from changefeed.leases.container import Members
from changefeed.leases.errors import ContainerUnavailable, MemberConflict
from changefeed.leases.lease import HostName, Incarnation, Member
from changefeed.leases.memory import MemoryLeases
from tests.support.proxies import Cutting, proxied

A = HostName("a")
LOST = ContainerUnavailable("lost on its way")
WATCHED = 2 * 5.0 + 10.0
"""Two heartbeats, and one call that takes its whole time."""


def membership(container: Members, incarnation: str, *, clock_ahead: float = 0.0) -> Membership:
    events = HostEvents(A)
    loop = asyncio.get_running_loop()
    return Membership(
        container,
        Member(name=A, incarnation=Incarnation(incarnation), address="http://a"),
        LeaseSettings(),
        events=events,
        retrier=Retrier(events, Random(1)),
        wall=lambda: 1_700_000_000.0 + loop.time() + clock_ahead,
    )


@asynccontextmanager
async def living(member: Membership) -> AsyncIterator[None]:
    """Keep it beating until the block is left."""
    beating = asyncio.create_task(member.keep_alive())
    try:
        yield
    finally:
        beating.cancel()


async def record(container: MemoryLeases) -> Member:
    (member,) = await container.members()
    return member


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_host_joins_at_once_where_nobody_has_its_name() -> None:
    container = MemoryLeases()
    await membership(container, "one").join()
    assert now() == 0
    assert (await record(container)).address == "http://a"


async def test_a_name_belongs_to_one_living_process() -> None:
    container = MemoryLeases()
    first = membership(container, "one")
    await first.join()
    async with living(first):
        await asyncio.sleep(1)
        with pytest.raises(NameTaken, match="give this one a name of its own"):
            await membership(container, "two").join()
        assert (await record(container)).incarnation == "one"


async def test_a_namesake_is_seen_to_live_though_one_of_its_heartbeats_is_late() -> None:
    container = MemoryLeases()
    first = membership(container, "one")
    await first.join()
    joining = asyncio.create_task(membership(container, "two").join())
    await asyncio.sleep(12)  # as after one that failed
    async with living(first):
        with pytest.raises(NameTaken):
            await joining


async def test_the_record_that_a_crash_left_behind_is_taken_over_when_it_stands_still() -> None:
    container = MemoryLeases()
    await membership(container, "dead").join()
    await membership(container, "next").join()
    assert WATCHED <= now() < WATCHED + 2.5
    assert (await record(container)).incarnation == "next"


async def test_a_record_is_watched_before_it_is_taken_over_however_old_by_its_stamp() -> None:
    container = MemoryLeases()
    await membership(container, "dead").join()
    await membership(container, "next", clock_ahead=10_000).join()
    assert now() >= WATCHED


async def test_of_two_that_take_over_a_dead_name_one_wins() -> None:
    container = MemoryLeases()
    await membership(container, "dead").join()
    both = [membership(container, "one"), membership(container, "two")]

    async def lives(one: Membership) -> None:
        await one.join()
        await one.keep_alive()

    running = [asyncio.create_task(lives(x)) for x in both]
    done, left = await asyncio.wait(running, timeout=60, return_when=asyncio.FIRST_EXCEPTION)
    assert [type(x.exception()) for x in done] == [NameTaken]
    assert len(left) == 1
    for task in left:
        task.cancel()


async def test_a_host_whose_own_record_was_written_unanswered_knows_it() -> None:
    container = MemoryLeases()
    cut = Cutting(LOST, at=1, after=True, only=lambda x: x == "put_member")
    await membership(proxied(container, cut), "one").join()
    assert now() < 1  # it did not wait for itself to die
    assert (await record(container)).incarnation == "one"


@pytest.mark.parametrize("lost", ["before its effect", "after its effect"])
async def test_a_heartbeat_whose_answer_was_lost_is_followed_by_the_next(lost: str) -> None:
    container = MemoryLeases()
    cut = Cutting(LOST, at=2, after=lost == "after its effect", only=lambda x: x[:3] == "put")
    member = membership(proxied(container, cut), "one")
    await member.join()
    async with living(member):
        await asyncio.sleep(6)
        before = (await record(container)).sign_of_life
        await asyncio.sleep(10)  # one heartbeat finds out, the next one writes
        assert (await record(container)).sign_of_life != before


async def test_a_host_that_wakes_up_finds_its_name_taken() -> None:
    container = MemoryLeases()
    frozen = membership(container, "frozen")
    await frozen.join()
    await membership(container, "next").join()
    with pytest.raises(NameTaken) as taken:
        await asyncio.wait_for(frozen.keep_alive(), 60)
    assert taken.value.incarnation == "next"
    assert (await record(container)).incarnation == "next"
    with pytest.raises(NameTaken):
        await frozen.announce_stopping()
    await frozen.leave()
    assert (await record(container)).incarnation == "next"


async def test_a_record_that_others_have_removed_is_written_again() -> None:
    container = MemoryLeases()
    member = membership(container, "one")
    await member.join()
    await container.remove_member(await record(container))
    async with living(member):
        await asyncio.sleep(11)  # one heartbeat finds out, the next one writes
        assert (await record(container)).incarnation == "one"


async def test_a_host_that_stops_says_so_and_leaves_nothing() -> None:
    container = MemoryLeases()
    member = membership(container, "one")
    await member.join()
    await member.announce_stopping()
    assert (await record(container)).stopping
    await member.leave()
    assert await container.members() == []


async def test_two_writers_of_one_record_are_told_apart_by_its_version() -> None:
    container = MemoryLeases()
    await membership(container, "one").join()
    with pytest.raises(MemberConflict):
        await container.put_member(Member(name=A, incarnation=Incarnation("two")))


async def test_a_record_whose_last_heartbeat_went_unanswered_is_removed_all_the_same() -> None:
    container = MemoryLeases()
    cut = Cutting(LOST, at=2, after=True, only=lambda x: x == "put_member")
    member = membership(proxied(container, cut), "one")
    await member.join()
    with pytest.raises(ContainerUnavailable):
        await member.announce_stopping()
    await member.leave()
    assert await container.members() == []
