"""A host comes and a host dies: what moves then, told by a fleet of real hosts."""

import asyncio

from changefeed.testing.fleet import Fleet
from tests.support.looking import start

ROUND = 5.5  # a balancing interval with its jitter
EXPIRATION = 30.0
QUIET = 5.0  # rebalance_delay


async def test_the_leases_of_a_host_that_dies_are_spread_when_they_expire() -> None:
    async with Fleet(ranges=12) as fleet:
        start(fleet, "abcd")
        await asyncio.sleep(3 * ROUND + QUIET)
        before = await fleet.owners()
        await fleet.kill("d")
        await asyncio.sleep(EXPIRATION - 10.0 - ROUND)  # it renewed at most 10 s ago
        assert await fleet.loads() == {"a": 3, "b": 3, "c": 3}
        await asyncio.sleep(10.0 + 3 * ROUND)
        assert await fleet.loads() == {"a": 4, "b": 4, "c": 4}
        after = await fleet.owners()
        assert sum(before[x] != after[x] for x in after) == 3
