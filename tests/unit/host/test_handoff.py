"""A steal is a handoff: the edges, one story each."""

import asyncio
from collections import Counter
from typing import Self

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.looking import start

SETTLED = 25.0


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


def reasons(fleet: Fleet) -> Counter[CloseReason]:
    return Counter(reason for _, _, reason in fleet.log.closed)


async def test_a_graceful_move_under_load_delivers_nothing_twice() -> None:
    feed = MemoryFeed(8)
    async with Writing(feed, 50) as writing, Fleet(feed, pace=0.01) as fleet:
        fleet.start("a")
        await asyncio.sleep(SETTLED)
        start(fleet, "bcd")
        await asyncio.sleep(SETTLED)
        assert await fleet.loads() == {"a": 2, "b": 2, "c": 2, "d": 2}
        assert reasons(fleet) == {CloseReason.HANDED_OVER: 6}
        await asyncio.sleep(5)
        assert set(fleet.log.times.values()) == {1}
        assert len(fleet.log.delivered) > writing.written - 60


async def test_the_owner_finishes_what_it_has_in_hand_before_the_lease_moves() -> None:
    async with Fleet(make.memory_feed(2, 40), pace=1.0) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")  # asks at about 10, while both batches of 20 are in hand
        await asyncio.sleep(40)
        assert await fleet.loads() == {"a": 1, "b": 1}
        assert set(fleet.log.times.values()) == {1}
        assert {host for host, _, _ in fleet.log.delivered} == {"a"}


async def test_an_owner_that_takes_too_long_is_cut_off_and_the_rest_comes_again() -> None:
    feed, container = make.memory_feed(2, 200), MemoryLeases()
    parts = {"leases": {"max_handoff_time": 3.0}}
    async with Fleet(feed, container, pace=1.0, settings=parts) as fleet:
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
    feed, container = make.memory_feed(2, 100), MemoryLeases()
    parts = {"leases": {"max_handoff_time": 0}}
    async with Fleet(feed, container, pace=1.0, settings=parts) as fleet:
        fleet.start("a")
        await asyncio.sleep(5)
        fleet.start("b")
        await asyncio.sleep(10)
        assert await fleet.loads() == {"a": 1, "b": 1}
        await asyncio.sleep(SETTLED)
        assert reasons(fleet) == {CloseReason.LEASE_LOST: 1}
