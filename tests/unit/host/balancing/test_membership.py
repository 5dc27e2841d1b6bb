"""A host's own record: who may have a name, and what others see of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from changefeed.host.balancing.membership import Membership, NameTaken
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.settings import LeaseSettings
from changefeed.leases.container import Members
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.lease import HostName, Incarnation, Member
from changefeed.leases.listing import LeaseListing, ListedFleet
from changefeed.leases.memory import MemoryLeases
from tests.support.looking import now
from tests.support.proxies import Cutting, proxied

A = HostName("a")
LOST = ContainerUnavailable("lost on its way")
BEAT = 10.0
WATCHED = 1.5 * BEAT + 10.0
"""A heartbeat that is a quarter late and gets no answer, and the next one a quarter later."""


def membership(
    container: Members,
    incarnation: str,
    *,
    clock_ahead: float = 0.0,
    on_beat: Callable[[float], None] = lambda _: None,
) -> Membership:
    events = HostEvents(A)
    loop = asyncio.get_running_loop()
    return Membership(
        container,
        Member(name=A, incarnation=Incarnation(incarnation), address="http://a"),
        LeaseSettings(),
        events=events,
        retrier=Retrier(events, Random(1)),
        wall=lambda: 1_700_000_000.0 + loop.time() + clock_ahead,
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


async def record(container: MemoryLeases) -> Member:
    (member,) = await container.members()
    return member


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


async def test_a_namesake_that_beats_just_before_its_record_is_taken_is_watched_anew() -> None:
    container = MemoryLeases()
    await membership(container, "one").join()
    beaten = False

    async def beats_first(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal beaten
        if name == "put_member" and not beaten:
            beaten = True
            found = await record(container)
            await container.put_member(replace(found, heartbeats=found.heartbeats + 1))
        return await call()

    await membership(proxied(container, beats_first), "two").join()
    assert now() >= 2 * WATCHED


class Lagging(MemoryLeases):
    """Shows the members as they were, until the replica has caught up."""

    shown: Sequence[Member] | None = None
    listings = 0

    async def members(self) -> Sequence[Member]:
        self.listings += 1
        assert self.listings < 100, "asked for again and again, without a pause"
        return await super().members() if self.shown is None else self.shown


@pytest.mark.parametrize("held", ["nothing", "an older record"])
async def test_a_host_joins_a_listing_that_lags_behind_with_pauses(held: str) -> None:
    container = Lagging()
    if held == "an older record":
        await membership(container, "one").join()
    container.shown = await container.members()
    await membership(container, "one").join()  # its process wrote on after that
    asyncio.get_running_loop().call_later(60, setattr, container, "shown", None)
    container.listings, began = 0, now()
    await membership(container, "one").join()
    assert now() - began == pytest.approx(60, abs=BEAT / 4)
    assert container.listings <= 2 + 60 / (BEAT / 4)


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
        await asyncio.sleep(BEAT + 1)
        before = (await record(container)).sign_of_life
        await asyncio.sleep(BEAT / 2)  # the next one comes soon
        assert (await record(container)).sign_of_life != before


class Late(MemoryLeases):
    """Answers a while after it has written."""

    takes = 0.0

    async def put_member(self, member: Member) -> Member:
        stored = await super().put_member(member)
        await asyncio.sleep(self.takes)
        return stored


async def test_a_heartbeat_whose_answer_comes_late_does_not_delay_the_next() -> None:
    container, sent = Late(), list[float]()
    member = membership(container, "one", on_beat=sent.append)
    await member.join()
    container.takes = 4.0
    async with living(member):
        await asyncio.sleep(3.5 * BEAT)
    assert sent == pytest.approx([0, BEAT, 2 * BEAT, 3 * BEAT])


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


async def test_a_host_that_stops_says_so_and_leaves_nothing() -> None:
    container = MemoryLeases()
    member = membership(container, "one")
    await member.join()
    await member.announce_stopping()
    assert (await record(container)).stopping
    await member.leave()
    assert await container.members() == []


class Ailing(MemoryLeases):
    """May be one that is not written, or not read; a record of what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = list[str]()
        self.fails_writes = self.fails_listings = False
        self.takes = 0.0

    async def put_member(self, member: Member) -> Member:
        self.asked.append("put_member")
        if self.fails_writes:
            raise ContainerUnavailable("the disk is full")
        return await super().put_member(member)

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet | None:
        if self.fails_listings or (self.fails_writes and heartbeat is not None):
            raise ContainerUnavailable("not now")
        await asyncio.sleep(self.takes)
        asked = self.asked.copy()  # it writes by put_member, in the same request
        found = await super().list_fleet(token, heartbeat)
        self.asked = [*asked, "list_fleet"]
        await asyncio.sleep(self.takes)
        return found


async def started(
    container: Ailing, on_beat: Callable[[float], None] = lambda _: None
) -> tuple[Membership, LeaseListing]:
    """A member, and the listings of its host, of which one comes as soon as it has joined."""
    member, listing = (
        membership(container, "one", on_beat=on_beat),
        LeaseListing(container, now),
    )
    await member.join()
    await listing.list_fleet(member.send_along)
    return member, listing


async def test_a_heartbeat_along_with_a_listing_counts_from_when_it_was_sent() -> None:
    container, beats = Ailing(), list[float]()
    member, listing = await started(container, on_beat=beats.append)
    async with living(member):
        await asyncio.sleep(8)
        container.takes = 1.0
        await listing.list_fleet(member.send_along)
        assert beats == [0, 8]


async def test_at_rest_a_host_makes_one_call_for_its_listings_and_its_heartbeat() -> None:
    container = Ailing()
    member, listing = await started(container)
    before, container.asked = (await record(container)).heartbeats, []
    async with living(member):
        for _ in range(10):
            await asyncio.sleep(5.5)  # the longest time from one listing to the next
            await listing.list_fleet(member.send_along)
    assert container.asked == ["list_fleet"] * 10
    assert (await record(container)).heartbeats == before + 10


async def test_a_container_that_is_not_written_is_listed_all_the_same() -> None:
    container, failed = Ailing(), 0
    member, listing = await started(container)
    async with living(member):
        container.fails_writes = True
        for _ in range(10):
            await asyncio.sleep(0.9 * BEAT)
            try:
                await listing.list_fleet(member.send_along)
            except ContainerUnavailable:
                failed += 1
        assert failed == 1  # the first, that went with a heartbeat
        container.fails_writes = False
        await asyncio.sleep(BEAT)
        container.asked = []
        await listing.list_fleet(member.send_along)
        await asyncio.sleep(BEAT)
        assert container.asked == ["list_fleet"]  # they go together again


async def test_a_container_that_is_not_listed_gets_each_heartbeat_all_the_same() -> None:
    container = Ailing()
    member, listing = await started(container)
    async with living(member):
        container.fails_listings = True
        for _ in range(10):
            before = (await record(container)).heartbeats
            await asyncio.sleep(BEAT + 0.1)
            with pytest.raises(ContainerUnavailable):
                await listing.list_fleet(member.send_along)
            await asyncio.sleep(0.01)
            assert (await record(container)).heartbeats == before + 1


async def test_a_host_that_stops_says_so_though_a_heartbeat_is_under_way() -> None:
    container = Ailing()
    member, listing = await started(container)
    await asyncio.sleep(8)
    container.takes = 1.0
    listed = asyncio.create_task(listing.list_fleet(member.send_along))
    await asyncio.sleep(0.5)
    await member.announce_stopping()
    await listed
    assert (await record(container)).stopping


async def test_a_record_whose_last_heartbeat_went_unanswered_is_removed_all_the_same() -> None:
    container = MemoryLeases()
    cut = Cutting(LOST, at=2, after=True, only=lambda x: x == "put_member")
    member = membership(proxied(container, cut), "one")
    await member.join()
    with pytest.raises(ContainerUnavailable):
        await member.announce_stopping()
    await member.leave()
    assert await container.members() == []
