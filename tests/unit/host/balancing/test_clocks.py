"""Hosts whose wall clocks are wrong by more than the settings allow."""

import asyncio

import pytest

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from tests.support.fleet import Fleet

_FAR = 1000.0  # expiration and max_clock_skew are 330 s together


def filled() -> MemoryFeed:
    feed = MemoryFeed(6)
    for n in range(600):
        feed.append(f"key-{n % 50}")
    return feed


@pytest.mark.parametrize("error", [_FAR, -_FAR], ids=["ahead", "behind"])
async def test_a_newcomer_with_a_wrong_clock_gets_its_share_and_forces_nothing(
    error: float,
) -> None:
    feed, container = filled(), MemoryLeases()
    async with Fleet(feed, container, pace=0.1) as fleet:
        for name in "ab":
            fleet.start(name)
        await asyncio.sleep(30)
        before = {x.range_id: x.epoch for x in await container.list()}
        fleet.start("c", clock_error=error)
        await asyncio.sleep(10)
        moved = [x for x in await container.list() if x.epoch != before[x.range_id]]
        assert len(moved) <= 2
        await asyncio.sleep(110)
        assert await fleet.loads() == {"a": 2, "b": 2, "c": 2}
        assert len(fleet.log.times) == 600
        assert set(fleet.log.times.values()) == {1}  # handoffs only: nothing was repeated


async def test_a_host_with_a_clock_ahead_is_refused_the_name_of_a_living_one() -> None:
    feed, container = filled(), MemoryLeases()
    async with Fleet(feed, container) as fleet:
        fleet.start("a")
        await asyncio.sleep(30)
        first = fleet.running.pop("a")
        fleet.hosts.pop("a")
        fleet.start("a", clock_error=_FAR)
        with pytest.raises(Exception, match="another living process runs as host 'a'"):
            await fleet.running.pop("a")
        fleet.hosts.pop("a")
        assert not first.done()
        first.cancel()
