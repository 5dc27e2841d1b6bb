"""Heartbeats keep leases, and a host of an earlier version, which does not know that, joins.

Such a host judges by leases alone: it takes what stands still for two renewals, where its stamp
is old, and for the expiration where not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.memory import MemoryLeases
from tests.simulation.renewals import OwnRecordOnly, make_older
from tests.support.fleet import Fleet, Parts
from tests.support.proxies import proxied

OLD_STAMPS = 400.0
BY_HEARTBEAT: Parts = {"leases": {"renewal": "host"}}
WRITES = {"replace", "checkpoint", "acquire"}


@pytest.mark.parametrize("at_rest", [20.0, OLD_STAMPS], ids=["new stamps", "old stamps"])
async def test_who_writes_no_lease_has_stopped_before_an_earlier_version_takes_its_range(
    at_rest: float,
) -> None:
    leases, feed, cut_off = MemoryLeases(), MemoryFeed(2), asyncio.Event()

    async def cut(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if cut_off.is_set() and name in WRITES:
            raise ContainerUnavailable("not now")
        return await call()

    async with Fleet(feed, leases, parts=BY_HEARTBEAT) as fleet:
        fleet.start("a", container=proxied(leases, cut))
        await asyncio.sleep(at_rest)
        pool = fleet.hosts["a"]._pool
        assert pool is not None
        cut_off.set()
        make_older(fleet.start("b", container=OwnRecordOnly(leases, "b")))
        taken = set[RangeId]()
        for _ in range(1200):
            await asyncio.sleep(0.1)
            taken = {x.range_id for x in await leases.list() if x.owner == "b"}
            assert taken.isdisjoint(x.range_id for x in pool.may_act_on)
        assert taken
