"""Balancing over a container that is slow, loses answers, or is written by others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.coordinator import Coordinator
from changefeed.leases.container import LeaseContainer, ListedFleet
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import HostName, Incarnation, Member, Version
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.runtime.errors import StoreUnavailable
from changefeed.stores.store import WHOLE
from changefeed.testing.fleet import Fleet
from changefeed.testing.proxies import FailingCall, proxied
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership
from tests.support.calls import Calls
from tests.support.coordinating import coordinating
from tests.support.looking import lease_in, now

A, B, C = HostName("a"), HostName("b"), HostName("c")
A1, B1, C1 = Incarnation("a-1"), Incarnation("b-1"), Incarnation("c-1")
R0 = RangeId("r0")


class ShownByChanges(MemoryLeases):
    """No lease or member that was removed is shown: as Cosmos DB's change feed has it."""

    renew_each = True

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        return replace(await super().list_fleet(token, heartbeat), total=None)


async def test_a_lease_that_is_found_gone_has_all_listed_where_deletes_are_not_shown() -> None:
    feed, container = MemoryFeed(1), ShownByChanges()
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(10)
        lease = await lease_in(container)
        await container.delete(lease)
        await asyncio.sleep(18)  # a renewal and two listings; the ranges are looked at after 20
        assert await fleet.loads() == {"a": 1}


async def test_a_lease_that_is_deleted_is_left_to_its_owner_for_an_expiration() -> None:
    async with Fleet(ranges=2) as fleet:
        for name in ("a", "b"):
            fleet.start(name)
        await asyncio.sleep(30)
        await fleet.kill("b")
        (theirs,) = [x for x in await fleet.container.list() if x.owner == "b"]
        await fleet.container.delete(theirs)
        await asyncio.sleep(25)
        assert len(await fleet.container.list()) == 1
        await asyncio.sleep(15)
        assert await fleet.loads() == {"a": 2}


async def test_what_is_not_begun_when_the_host_is_to_stop_is_left_to_others() -> None:
    feed, container = MemoryFeed(40), MemoryLeases()
    calls = Calls(lasting={"acquire": 1})
    async with Fleet(feed, container) as fleet:
        fleet.start("a", container=proxied(container, calls))
        await asyncio.sleep(0.5)
        await fleet.stop("a")
        assert calls.count["acquire"] == 16  # so many at once
        assert set((await fleet.owners()).values()) == {None}


async def test_a_host_whose_listings_take_long_acquires_what_they_show() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    slow = Calls(lasting={"list_fleet": 6})  # rounds are to begin every 5 s
    async with Fleet(feed, container) as fleet:
        fleet.start("a", container=proxied(container, slow))
        await asyncio.sleep(60)
        assert await fleet.loads() == {"a": 2}


async def test_what_was_created_and_is_not_shown_yet_waits_for_the_next_listing() -> None:
    async def unseen(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await call()
        return replace(answer, leases=[]) if name == "list_fleet" else answer

    calls = Calls(lasting={"list_fleet": 0.1})
    async with Fleet(MemoryFeed(1), MemoryLeases()) as fleet:
        fleet.start("a", container=proxied(proxied(fleet.container, unseen), calls))
        await asyncio.sleep(10)
        assert (await calls.within(50))["list_fleet"] <= 20  # else one follows the other


async def test_a_claim_without_an_answer_is_not_owned_until_it_is_acquired_again() -> None:
    feed, container = MemoryFeed(1), MemoryLeases()
    feed.append("k")
    cut = FailingCall(StoreUnavailable("lost"), at=1, only=lambda x: x == "acquire")
    async with Fleet(feed, container) as fleet:
        host = fleet.start("a", container=proxied(container, cut))
        await asyncio.sleep(1)
        assert (dict(host.leases), fleet.log.opened) == ({}, [])
        await asyncio.sleep(10)
        assert [x.epoch for x in host.leases.values()] == [1]
        assert fleet.log.opened == [("a", R0)]


async def test_what_ends_while_it_is_listed_is_not_taken_by_what_the_listing_says() -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    asked = asyncio.Event()

    async def ask() -> None:
        asked.set()

    calls = Calls(first={"list_fleet": ask})
    async with Fleet(feed, leases) as fleet:
        fleet.start("a", container=proxied(leases, calls))
        await asyncio.sleep(10)
        calls.answered_after["list_fleet"] = 3
        calls.count.clear()
        asked.clear()
        await asked.wait()
        feed.split_range(R0)  # its worker ends it within a second
        await asyncio.sleep(30)
        assert await fleet.loads() == {"a": 2}
        assert calls.count["acquire"] == 2


# Leaving


async def test_what_is_released_while_it_is_listed_is_not_released_again() -> None:
    feed, leases = MemoryFeed(4), MemoryLeases()
    calls = Calls(answered_after={"list": 1})
    async with Fleet(feed, leases) as fleet:
        fleet.start("a", container=proxied(leases, calls))
        await asyncio.sleep(10)
        calls.count.clear()
        await fleet.stop("a")
        assert set((await fleet.owners()).values()) == {None}
        assert calls.count["replace"] == 4


@asynccontextmanager
async def coordinator_of_c(container: LeaseContainer) -> AsyncIterator[Coordinator]:
    """The rounds of a host c that has no workers."""
    async with coordinating(container, "c", parts={"timing": {"rebalance_delay": 0}}) as found:
        yield found[0]


async def leased_by(*owners: tuple[HostName, Incarnation | None]) -> MemoryLeases:
    """Leases r0, r1, ... of these owners."""
    leases = MemoryLeases()
    for n, (owner, incarnation) in enumerate(owners):
        stored = await leases.create(make.lease(f"r{n}", at="0"))
        await leases.acquire(stored.taken_by(owner, incarnation or Incarnation("")))
    return leases


async def test_who_leaves_takes_back_its_requests_and_no_others() -> None:
    leases = await leased_by((A, A1), (A, A1))
    await leases.replace((await lease_in(leases, "r0")).requested_by(C))
    await leases.replace((await lease_in(leases, "r1")).requested_by(B))
    async with coordinator_of_c(leases) as rounds:
        await rounds.release_unserved()
    assert [x.next_owner for x in await leases.list()] == [None, B]
    assert [x.owner for x in await leases.list()] == [A, A]


async def test_who_leaves_releases_what_it_is_granted_at_the_last_moment() -> None:
    leases = await leased_by((A, A1))
    await leases.replace((await lease_in(leases)).requested_by(C))

    async def granted() -> None:
        if (await lease_in(leases)).owner == A:
            await leases.replace((await lease_in(leases)).handed_over())

    calls = Calls(first={"replace": granted})
    async with coordinator_of_c(proxied(leases, calls)) as rounds:
        await rounds.release_unserved()
    left = await lease_in(leases)
    assert (left.owner, left.next_owner) == (None, None)


async def test_leases_that_their_store_forgot_are_there_again_after_the_next_listing() -> None:
    feed, ownership, checkpoints = (
        make.memory_feed(4, 40),
        MemoryOwnership(),
        MemoryCheckpoints(),
    )
    container = TwoStoreLeases(ownership, checkpoints)
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(15)
        for lease in await ownership.list():
            await ownership.delete(lease)
        await asyncio.sleep(7)  # one balancing interval, and no ranges_interval
        assert len(await container.list()) == 4
        await asyncio.sleep(15)
        assert await fleet.loads() == {"a": 4}
        assert fleet.log.repeats == 0


# Taking from the dead


class BehindAReplica:
    """A container for c whose listings show the record of a as it was first; what c tries to
    acquire there, others have just written.
    """

    def __init__(self, leases: MemoryLeases) -> None:
        self.leases = leases
        self.container = proxied(leases, self._ask)
        self.tried: list[RangeId] = []
        self._first: Member | None = None

    async def _ask(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name == "acquire":
            for lease in await self.leases.list():
                await self.leases.replace(lease.with_health(RangeHealth(last_progress=now())))
        try:
            answer = await call()
        except LeaseConflict as conflict:
            self.tried.append(conflict.lease.range_id)
            raise
        if name == "list_fleet":
            return replace(answer, members=[self._as_first(x) for x in answer.members])
        return answer

    def _as_first(self, member: Member) -> Member:
        if member.name != A:
            return member
        self._first = self._first or member
        return self._first

    async def beat(self) -> None:
        """Let a live, or be alive again."""
        found = [x for x in await self.leases.members() if x.name == A]
        beats, version = (found[0].heartbeats, found[0].version) if found else (0, Version(""))
        await self.leases.put_member(make.member("a", heartbeats=beats + 1, version=version))


async def test_a_living_owner_whose_heartbeats_are_not_shown_loses_none_of_its_leases() -> None:
    behind = BehindAReplica(await leased_by((A, A1), (A, A1)))
    async with coordinator_of_c(behind.container) as rounds:
        for _ in range(5):
            await behind.beat()
            await rounds.round()
            await asyncio.sleep(10)
    assert behind.tried == []


async def test_all_that_a_dead_host_has_is_taken_in_one_round() -> None:
    async with Fleet(ranges=4) as fleet:
        fleet.start("a")
        await asyncio.sleep(10)
        await fleet.kill("a")
        fleet.start("b")
        await asyncio.sleep(33)
        assert await fleet.loads() == {"b": 4}


async def test_an_owner_that_was_fenced_in_vain_is_fenced_again() -> None:
    behind = BehindAReplica(await leased_by((A, A1)))
    await behind.beat()
    async with coordinator_of_c(behind.container) as rounds:
        await rounds.round()
        await asyncio.sleep(31)
        await rounds.round()
        assert behind.tried == [R0]
        await behind.beat()  # it was frozen, and not dead
        await rounds.round()
        assert behind.tried == [R0]


# Asking


async def alive(leases: MemoryLeases, *names: HostName) -> None:
    for name in names:
        await leases.put_member(make.member(name))


async def test_what_a_host_does_not_read_goes_to_no_dead_host_that_asked_for_it() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    for found in await feed.ranges():
        lease = make.lease(found, at="0").taken_by(A, A1)
        await container.create(lease.requested_by(HostName("gone")))
    owners = set()
    async with Fleet(feed, container) as fleet:
        fleet.start("b")
        await asyncio.sleep(2)
        fleet.start("a")
        for _ in range(60):
            await asyncio.sleep(0.2)
            owners |= set((await fleet.owners()).values())
        assert owners == {A, B, None}
        assert await fleet.loads() == {"a": 1, "b": 1}
