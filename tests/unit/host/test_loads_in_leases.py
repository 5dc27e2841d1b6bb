"""What ranges cost their owners, as it is found in their leases. In virtual time."""

import asyncio

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet, Sections

BY_LOAD: Sections = {"leases": {"balance": "load"}, "timing": {"rebalance_delay": 0.0}}
HOT, WARM = RangeId("r0"), RangeId("r1")


async def listed(fleet: Fleet) -> dict[RangeId, Lease]:
    return {x.range_id: x for x in await fleet.container.list()}


async def write(
    feed: MemoryFeed, seconds: int, hot: RangeId = HOT, warm: RangeId = WARM
) -> None:
    """Write what keeps the owner of one range busy for 0.8 of a second, of another for 0.4."""
    for _ in range(seconds):
        for name, changes in ((hot, 8), (warm, 4)):
            for _ in range(changes):
                feed.append("key", range_id=name)
        await asyncio.sleep(1.0)


async def test_where_heartbeats_keep_leases_a_load_is_written_when_it_has_changed() -> None:
    feed, leases = MemoryFeed(4), MemoryLeases()
    async with Fleet(feed, leases, pace=0.1, settings=BY_LOAD) as fleet:
        fleet.start("a")
        await write(feed, 120)
        found = await listed(fleet)
        assert (found[HOT].load, found[WARM].load) == (0.8, 0.4), "no call waits for another"
        await write(feed, 120, warm=HOT)
        assert ((await listed(fleet))[HOT].load or 0.0) >= 1.1, "it falls behind"
        await asyncio.sleep(300)
        before = await listed(fleet)
        assert {x.load for x in before.values()} == {0.0}
        await asyncio.sleep(300)
        assert await listed(fleet) == before


async def test_where_heartbeats_keep_leases_the_cooldown_of_a_moved_one_ends() -> None:
    async with Fleet(ranges=2, settings=BY_LOAD) as fleet:
        fleet.start("a")
        await fleet.balanced()
        fleet.start("b")
        await asyncio.sleep(40)
        assert any(x.cooling for x in (await listed(fleet)).values())
        await asyncio.sleep(60)
        assert not any(x.cooling for x in (await listed(fleet)).values())
