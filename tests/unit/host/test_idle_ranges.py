"""Ranges at rest: asked for together, or ever less often. In virtual time."""

import asyncio

import pytest

from changefeed.feeds.feed import Feed, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet, Sections
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.calls import Calls

R0 = RangeId("r0")
SETTLED = 30.0
MANUAL: Sections = {"observer": {"checkpoint": "manual", "max_unacknowledged": 100}}


class Asked(Calls):
    """A feed whose calls are counted; some fail, or take their time."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = proxied(feed, self)


class OneByOne(MemoryFeed):
    """It cannot tell without reading whether there is something."""

    news = Feed.news


async def test_ranges_at_rest_are_asked_for_together() -> None:
    asked = Asked(MemoryFeed(100))
    async with Fleet(asked.feed, MemoryLeases()) as fleet:
        fleet.start("a")
        await asyncio.sleep(SETTLED)
        calls = await asked.within(100)
        assert calls["read"] == 0
        assert 90 <= calls["news"] <= 112
        assert 9 <= calls["lags"] <= 11


@pytest.mark.parametrize("changes", [0, 3])
async def test_a_range_at_rest_has_no_tasks_but_to_deliver_and_to_read(changes: int) -> None:
    async def tasks(ranges: int) -> int:
        async with Fleet(make.memory_feed(ranges, changes), MemoryLeases()) as fleet:
            fleet.start("a")
            await asyncio.sleep(SETTLED)
            return len(asyncio.all_tasks())

    assert await tasks(30) - await tasks(10) == 2 * 20


async def test_the_lag_is_not_asked_for_where_a_read_has_just_found_nothing() -> None:
    asked = Asked(OneByOne(10))
    async with Fleet(asked.feed, MemoryLeases()) as fleet:
        host = fleet.start("a")
        await asyncio.sleep(SETTLED)
        assert (await asked.within(100))["lags"] == 0
        assert [x.changes for x in host.events.lags.values()] == [0] * 10


async def test_a_change_that_a_worker_has_read_is_not_read_again_for_its_age() -> None:
    asked = Asked(feed := MemoryFeed(1))
    for n in range(2_000):
        feed.append("key", committed_us=(1_700_000_000 + n) * 1_000_000)
    async with Fleet(asked.feed, MemoryLeases(), settings=MANUAL) as fleet:
        host, now = fleet.start("a"), asyncio.get_running_loop().time
        assert (await asked.within(SETTLED))["read"] == 3
        assert [x.seconds for x in host.events.lags.values()] == [pytest.approx(now(), abs=11)]


async def test_a_range_whose_changes_are_not_done_is_not_at_rest() -> None:
    asked = Asked(feed := MemoryFeed(1))
    async with Fleet(asked.feed, MemoryLeases(), settings=MANUAL) as fleet:
        fleet.start("a")
        feed.append("key", range_id=R0)
        await asyncio.sleep(SETTLED)
        assert (await asked.within(100))["read"] >= 80
