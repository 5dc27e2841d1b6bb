"""A steal is a handoff: the edges, one story each."""

import asyncio

from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support import make

SETTLED = 25.0


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
