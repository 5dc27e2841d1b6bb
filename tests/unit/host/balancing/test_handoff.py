"""A steal is a handoff: the edges, one story each."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Self

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.workers.acknowledgements import Acknowledgements
from changefeed.leases.lease import HostName, Incarnation, Lease, Member
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason
from tests.support.fleet import Fleet

SETTLED = 25.0
R0 = RangeId("r0")


def fill(feed: MemoryFeed, changes: int) -> None:
    for n in range(changes):
        feed.append(f"key-{n % 50}", b'{"n": %d}' % n)


class Writing:
    """Keeps appending to a feed, ``rate`` changes a second, until told to stop."""

    def __init__(self, feed: MemoryFeed, rate: float) -> None:
        self._feed = feed
        self._pause = 1 / rate
        self.written = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _write(self) -> None:
        while True:
            self._feed.append(f"key-{self.written % 50}", b"{}")
            self.written += 1
            await asyncio.sleep(self._pause)


async def the_lease(container: MemoryLeases, range_id: RangeId = R0) -> Lease:
    lease = await container.read(range_id)
    assert lease is not None
    return lease


@asynccontextmanager
async def in_mid_handoff(*, changes: int) -> AsyncIterator[Fleet]:
    """``a`` has half of the changes of each of two ranges in hand; ``b`` asks for one."""
    feed = MemoryFeed(2)
    fill(feed, changes)
    async with Fleet(feed, MemoryLeases(), pace=1.0) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")
        await asyncio.sleep(10)
        yield fleet


def reasons(fleet: Fleet) -> Counter[CloseReason]:
    return Counter(reason for _, _, reason in fleet.log.closed)


async def test_a_graceful_move_under_load_delivers_nothing_twice() -> None:
    feed = MemoryFeed(8)
    async with Writing(feed, 50) as writing, Fleet(feed, MemoryLeases(), pace=0.01) as fleet:
        fleet.start("a")
        await asyncio.sleep(SETTLED)
        for name in "bcd":
            fleet.start(name)
        await asyncio.sleep(SETTLED)
        assert await fleet.loads() == {"a": 2, "b": 2, "c": 2, "d": 2}
        assert reasons(fleet) == {CloseReason.HANDED_OVER: 6}
        await asyncio.sleep(5)
        assert set(fleet.log.times.values()) == {1}
        assert len(fleet.log.delivered) > writing.written - 60


async def test_only_the_ranges_that_move_pause() -> None:
    feed = MemoryFeed(2)
    async with Writing(feed, 100), Fleet(feed, MemoryLeases(), pace=0.001) as fleet:
        fleet.start("a")
        await asyncio.sleep(SETTLED)
        before = len(fleet.log.delivered)
        fleet.start("b")
        await asyncio.sleep(10)
        moved = {x for x, owner in (await fleet.owners()).items() if owner == "b"}
        assert len(moved) == 1
        stayed = [x for x in fleet.log.delivered[before:] if x[1] not in moved]
        assert len(stayed) > 400  # half of the changes of ten seconds, with nothing missing
        assert {host for host, _, _ in stayed} == {"a"}


async def test_the_owner_finishes_what_it_has_in_hand_before_the_lease_moves() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    fill(feed, 40)
    async with Fleet(feed, container, pace=1.0) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")  # asks at about 10, while both batches of 20 are in hand
        await asyncio.sleep(40)
        assert await fleet.loads() == {"a": 1, "b": 1}
        assert set(fleet.log.times.values()) == {1}
        assert {host for host, _, _ in fleet.log.delivered} == {"a"}


async def test_an_owner_that_takes_too_long_is_cut_off_and_the_rest_comes_again() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    fill(feed, 200)
    parts = {"leases": {"max_handoff_time": 3.0}}
    async with Fleet(feed, container, pace=1.0, parts=parts) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")
        await asyncio.sleep(SETTLED)
        assert await fleet.loads() == {"a": 1, "b": 1}
        assert fleet.log.delivered == []  # neither of the batches has been finished yet
        await asyncio.sleep(200)
        assert set(fleet.log.times.values()) == {1}
        assert {host for host, _, _ in fleet.log.delivered} == {"a", "b"}


async def test_without_handoff_time_a_lease_is_stolen_at_once() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    fill(feed, 100)
    parts = {"leases": {"max_handoff_time": 0}}
    async with Fleet(feed, container, pace=1.0, parts=parts) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")
        await asyncio.sleep(10)
        assert await fleet.loads() == {"a": 1, "b": 1}
        await asyncio.sleep(SETTLED)
        assert reasons(fleet) == {CloseReason.LEASE_LOST: 1}


async def test_an_owner_that_dies_in_mid_handoff_is_robbed_when_its_lease_expires() -> None:
    async with in_mid_handoff(changes=100) as fleet:
        asked_for = [x for x in await fleet.container.list() if x.next_owner == "b"]
        assert len(asked_for) == 1
        await fleet.kill("a")
        await asyncio.sleep(30 + 2 * 5.5)
        assert await fleet.loads() == {"b": 2}


async def test_an_owner_that_restarts_in_mid_handoff_passes_the_lease_on() -> None:
    async with in_mid_handoff(changes=100) as fleet:
        await fleet.kill("a")
        fleet.start("a")
        await asyncio.sleep(30)
        assert await fleet.loads() == {"a": 1, "b": 1}
        assert all(x.next_owner is None for x in await fleet.container.list())


async def test_the_lease_stays_when_the_host_that_asked_for_it_dies() -> None:
    async with in_mid_handoff(changes=60) as fleet:
        await fleet.kill("b")
        await asyncio.sleep(90)
        assert await fleet.loads() == {"a": 2}
        await asyncio.sleep(60)
        assert len(fleet.log.times) == 60


async def test_the_request_of_a_host_that_died_is_cleared_by_the_owner() -> None:
    container, feed = MemoryLeases(), MemoryFeed(1)
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(20)
        epoch = (await the_lease(container)).epoch
        await container.replace((await the_lease(container)).asked_by(HostName("gone")))
        await asyncio.sleep(15)
        lease = await the_lease(container)
        assert (lease.owner, lease.next_owner, lease.epoch) == ("a", None, epoch)


async def test_a_host_that_asked_and_restarts_still_gets_the_lease() -> None:
    async with in_mid_handoff(changes=60) as fleet:
        await fleet.kill("b")
        fleet.start("b")
        await asyncio.sleep(90)
        assert await fleet.loads() == {"a": 1, "b": 1}


async def test_a_lease_can_go_from_a_to_b_and_back_to_a() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    async with Writing(feed, 20), Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")
        await asyncio.sleep(SETTLED)
        await fleet.stop("b")
        await asyncio.sleep(SETTLED)
        assert await fleet.loads() == {"a": 2}
        fleet.start("b")
        await asyncio.sleep(SETTLED)
        assert await fleet.loads() == {"a": 1, "b": 1}
        assert set(fleet.log.times.values()) == {1}


async def test_a_request_is_withdrawn_when_somebody_leaves_meanwhile() -> None:
    feed, container = MemoryFeed(4), MemoryLeases()
    fill(feed, 160)
    async with Fleet(feed, container, pace=1.0) as fleet:
        for name in "ab":
            fleet.start(name)
        await asyncio.sleep(5)
        fleet.start("c")
        await asyncio.sleep(10)
        assert [x for x in await container.list() if x.next_owner == "c"]
        await fleet.stop("c")
        await asyncio.sleep(60)
        assert await fleet.loads() == {"a": 2, "b": 2}
        assert all(x.next_owner is None for x in await container.list())


async def test_a_range_that_ends_in_mid_handoff_ends_once() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    fill(feed, 20)
    async with Fleet(feed, container, pace=1.0) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        for range_id in ("r0", "r1"):
            feed.split(RangeId(range_id))
        fleet.start("b")
        await asyncio.sleep(90)
        assert await fleet.loads() == {"a": 2, "b": 2}
        assert set(fleet.log.times.values()) == {1}


async def test_the_whole_fleet_may_stop_in_mid_handoff() -> None:
    feed, container = MemoryFeed(4), MemoryLeases()
    fill(feed, 40)
    async with Fleet(feed, container, pace=1.0) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")
        await asyncio.sleep(6)
        await asyncio.gather(fleet.stop("a"), fleet.stop("b"))
        assert set((await fleet.owners()).values()) == {None}
        fleet.start("c")
        await asyncio.sleep(60)
        assert set(fleet.log.times.values()) == {1}
        assert len(fleet.log.times) == 40


async def test_a_host_of_another_kind_is_not_asked_but_robbed() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    stranger = HostName("stranger")
    for n in range(2):
        lease = Lease(range=(await feed.ranges())[n], continuation="0")  # type: ignore[arg-type]
        await container.create(lease)
        stored = await the_lease(container, lease.range_id)
        taken = stored.taken_by(stranger, Incarnation("none of theirs"))
        await container.acquire(replace(taken, incarnation=None))

    async def renew_for_ever() -> None:
        while True:
            for lease in await container.list():
                if lease.owner == stranger:
                    await container.replace(lease.renewed())
            await asyncio.sleep(10)

    renewing = asyncio.create_task(renew_for_ever())
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(12)
        assert await fleet.loads() == {"a": 1}  # the other one stays with the stranger
        renewing.cancel()
        await asyncio.sleep(45)
        assert await fleet.loads() == {"a": 2}


async def test_an_owner_that_never_hands_over_is_robbed_in_the_end() -> None:
    feed, container = MemoryFeed(2), MemoryLeases()
    deaf = HostName("deaf")
    for range_ in await feed.ranges():
        lease = Lease(range=range_, continuation="0")  # type: ignore[arg-type]
        await container.create(lease)
        await container.acquire(
            (await the_lease(container, range_.id)).taken_by(deaf, Incarnation("x"))
        )

    async def live_but_hand_nothing_over() -> None:
        member = await container.put_member(Member(name=deaf, incarnation=Incarnation("x")))
        while True:
            member = await container.put_member(
                replace(member, heartbeats=member.heartbeats + 1)
            )
            for lease in await container.list():
                if lease.owner == deaf:
                    await container.replace(lease.renewed())
            await asyncio.sleep(5)

    living = asyncio.create_task(live_but_hand_nothing_over())
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(5 + 30 + 30 - 1)
        assert await fleet.loads() == {"a": 0}
        await asyncio.sleep(5)
        assert await fleet.loads() == {"a": 1}
    living.cancel()


# What counts as done


def changes(feed: MemoryFeed, count: int) -> list[Change]:
    return [feed.append("k", b"{}", range_id=R0) for _ in range(count)]


def test_the_watermark_is_the_end_of_the_unbroken_beginning() -> None:
    one, two, three, four = changes(MemoryFeed(1), 4)
    progress = Acknowledgements()
    progress.deliver([one, two, three, four])
    assert progress.done(two) is None
    assert progress.done(four) is None
    assert progress.done(one) == two
    assert progress.unacknowledged == 2
    assert progress.done(three) == four
    assert progress.unacknowledged == 0


def test_all_up_to_a_change_are_done_with_it_and_with_what_was_done_early() -> None:
    one, two, three, four = changes(MemoryFeed(1), 4)
    progress = Acknowledgements()
    progress.deliver([one, two, three, four])
    assert progress.done(three) is None
    assert progress.done_up_to(two) == three
    assert progress.done_up_to(one) is None  # it never moves back
    assert progress.unacknowledged == 1
