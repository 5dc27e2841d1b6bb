"""How many hosts a fleet should have, and how fast its ranges get on."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.rates import rates
from changefeed.host.scaling import desired_hosts
from changefeed.host.snapshot import LeaseStatus, Snapshot
from tests.support import make


def fleet(
    *lags: int | None,
    paused: Sequence[int] = (),
    ended: Sequence[int] = (),
    without_lease: Sequence[str] = (),
) -> Snapshot:
    leases = [
        make.lease_status(
            f"r{n}", ended=n in ended, paused="bad data" if n in paused else None, lag=lag
        )
        for n, lag in enumerate(lags)
    ]
    return make.snapshot(leases, ranges_without_lease=without_lease)


@pytest.mark.parametrize(
    ("seen", "desired"),
    [
        (fleet(0, 0, 0), 0),
        (fleet(1, 0, 0), 1),
        (fleet(50, 50, 0), 1),
        (fleet(50, 51, 0), 2),
        (fleet(1_000_000, 0, 0), 3),
        (fleet(0, 500, paused=[1]), 0),
        (fleet(500, 500, 500, paused=[1]), 2),
        (fleet(0, None, ended=[1]), 0),
        (fleet(0, None), 1),
        (fleet(without_lease=["r0"]), 1),
        (fleet(), 0),
    ],
)
def test_lag_is_shared_by_hosts_and_a_host_needs_a_range(seen: Snapshot, desired: int) -> None:
    assert desired_hosts(seen, lag_per_host=100) == desired


class Counting(MemoryFeed):
    """Its positions are numbers, a thousand changes away from the end at 0; it is far away."""

    async def lags(self, at: Mapping[FeedRange, Continuation]) -> Mapping[RangeId, int]:
        await asyncio.sleep(1)
        return {x.id: 1000 - int(after) for x, after in at.items() if x.id != "gone"}


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
