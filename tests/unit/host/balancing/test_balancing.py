"""The five situations of load balancing, each told by a fleet of real hosts."""

import asyncio

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet

ROUND = 5.5  # a balancing interval with its jitter
EXPIRATION = 30.0
QUIET = 5.0  # rebalance_delay


async def test_1_nothing_is_owned_and_the_first_host_starts() -> None:
    async with Fleet(MemoryFeed(8), MemoryLeases()) as fleet:
        fleet.start("a")
        await asyncio.sleep(1)
        assert await fleet.loads() == {"a": 8}


async def test_2_a_host_too_many_stays_idle_until_one_goes() -> None:
    async with Fleet(MemoryFeed(3), MemoryLeases()) as fleet:
        for name in "abc":
            fleet.start(name)
        await asyncio.sleep(3 * ROUND + QUIET)
        assert await fleet.loads() == {"a": 1, "b": 1, "c": 1}
        before = await fleet.owners()
        fleet.start("d")
        await asyncio.sleep(10 * ROUND)
        assert await fleet.loads() == {"a": 1, "b": 1, "c": 1, "d": 0}
        assert await fleet.owners() == before
        await fleet.stop("b")
        await asyncio.sleep(2 * ROUND)
        assert await fleet.loads() == {"a": 1, "c": 1, "d": 1}


async def test_3_a_host_that_joins_a_balanced_fleet_gets_its_share_and_no_more_moves() -> None:
    async with Fleet(MemoryFeed(16), MemoryLeases()) as fleet:
        for name in "abc":
            fleet.start(name)
        await asyncio.sleep(3 * ROUND + QUIET)
        before = await fleet.owners()
        fleet.start("d")
        await asyncio.sleep(2 * ROUND + QUIET)
        after = await fleet.owners()
        assert await fleet.loads() == {"a": 4, "b": 4, "c": 4, "d": 4}
        assert sum(before[x] != after[x] for x in after) == 4


async def test_4_the_leases_of_a_host_that_dies_are_spread_when_they_expire() -> None:
    async with Fleet(MemoryFeed(12), MemoryLeases()) as fleet:
        for name in "abcd":
            fleet.start(name)
        await asyncio.sleep(3 * ROUND + QUIET)
        before = await fleet.owners()
        await fleet.kill("d")
        await asyncio.sleep(EXPIRATION - 10.0 - ROUND)  # it renewed at most 10 s ago
        assert await fleet.loads() == {"a": 3, "b": 3, "c": 3}
        await asyncio.sleep(10.0 + 3 * ROUND)
        assert await fleet.loads() == {"a": 4, "b": 4, "c": 4}
        after = await fleet.owners()
        assert sum(before[x] != after[x] for x in after) == 3


async def test_5_many_hosts_start_at_once_and_ranges_are_added_while_they_run() -> None:
    feed = MemoryFeed(20)
    async with Fleet(feed, MemoryLeases()) as fleet:
        for name in "abcdefg":
            fleet.start(name)
        await asyncio.sleep(3 * ROUND + QUIET)
        assert sorted((await fleet.loads()).values()) == [2, 3, 3, 3, 3, 3, 3]
        for range_ in list(await feed.ranges())[:3]:
            feed.split(range_.id)
        await asyncio.sleep(30 + 2 * ROUND + QUIET)
        assert sorted((await fleet.loads()).values()) == [3, 3, 3, 3, 3, 4, 4]
