"""Leases of ranges that the feed does not have."""

import asyncio

from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import FeedRange, Page, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.looking import lease_in, now, start

NONE = RangeId("r99")


async def test_a_range_that_the_feed_does_not_have_is_paused_and_ends_no_host() -> None:
    feed, leases = make.memory_feed(2, 100), MemoryLeases()
    await leases.create(make.lease(NONE, at="0"))
    async with Fleet(feed, leases) as fleet:
        start(fleet, "ab")
        await asyncio.sleep(25)
        stored = await lease_in(leases, NONE)
        assert stored.paused is None, "it is asked for again for a while"
        await asyncio.sleep(60)
        assert len(fleet.log.times) == 100
        assert not any(x.done() for x in fleet.running.values())
        stored = await lease_in(leases, NONE)
        assert stored.paused is not None
        assert "the feed has no range 'r99'" in stored.paused
        assert stored.owner is None


class Late(MemoryFeed):
    """Its replicas learn of a range after half a minute."""

    knows_from = 0.0

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        if now() < self.knows_from:
            raise RangeUnknown(found.id)
        return await super().read(found, after, limit)


async def test_a_range_that_some_replicas_do_not_know_yet_is_read_when_they_do() -> None:
    feed, leases = Late(2), MemoryLeases()
    async with Fleet(feed, leases) as fleet:
        for since in range(3):
            feed.knows_from = now() + 20
            for n in range(100):
                feed.append(f"k{n}")
            if not since:
                fleet.start("a")
            await asyncio.sleep(60)
            assert len(fleet.log.times) == 100 * (since + 1)
        assert not any(x.paused for x in await leases.list())
