"""How fast ranges get on between two looks."""

import asyncio
from dataclasses import replace

from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import Continuation, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.rates import rates
from changefeed.host.snapshot import LeaseStatus, Snapshot
from tests.support import make
from tests.support.looking import now


class Counting(MemoryFeed):
    """Its positions are numbers, a thousand changes away from the end at 0; it is far away."""

    async def lag(self, range_id: RangeId, after: Continuation) -> int:
        await asyncio.sleep(1)
        if range_id == "gone":
            raise RangeUnknown(range_id)
        return 1000 - int(after)


def lease(name: str, at: str) -> LeaseStatus:
    return make.lease_status(name, owner="a", continuation=at)


def look(seconds: float, *leases: LeaseStatus) -> Snapshot:
    return make.snapshot(leases, seconds=seconds)


async def test_a_rate_is_what_was_done_by_the_seconds_between() -> None:
    before = look(
        0, lease("r0", "0"), lease("rests", "7"), lease("back", "9"), lease("gone", "0")
    )
    after = look(
        10,
        lease("r0", "50"),
        lease("rests", "7"),
        lease("back", "3"),
        lease("gone", "5"),
        lease("new", "5"),
        replace(lease("r0", "9"), range="over", ended=True),
    )
    assert await rates(Counting(1), before, after) == {"r0": 5.0, "rests": 0.0}
    assert await rates(Counting(1), after, after) == {}


async def test_a_thousand_ranges_are_asked_for_several_at_a_time() -> None:
    names = [f"r{n}" for n in range(160)]
    before = look(0, *(lease(x, "0") for x in names))
    after = look(10, *(lease(x, "10") for x in names))
    begun = now()
    assert await rates(Counting(1), before, after) == dict.fromkeys(names, 1.0)
    assert now() - begun <= 20
