"""Hosts whose wall clocks are wrong by more than the settings allow."""

import asyncio

import pytest

from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support import make

_FAR = 1000.0  # expiration and max_clock_skew are 330 s together


@pytest.mark.parametrize("error", [_FAR, -_FAR], ids=["ahead", "behind"])
async def test_a_newcomer_with_a_wrong_clock_gets_its_share_and_forces_nothing(
    error: float,
) -> None:
    feed, container = make.memory_feed(6, 600), MemoryLeases()
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
