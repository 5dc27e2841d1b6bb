"""Who lives, seen from outside."""

import asyncio

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.fleet.liveness import living_hosts
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.testing import Fleet
from tests.support import make
from tests.support.looking import now, wall


async def test_dead_hosts_are_watched_for_a_whole_expiration() -> None:
    async with Fleet(ranges=2) as fleet:
        fleet.start("a")
        await fleet.balanced()
        await fleet.kill("a")
        began = now()
        assert await living_hosts(fleet.container, make.fleet_watch(), wall=wall) == []
        assert 30 <= now() - began < 31


async def test_a_foreign_owner_without_a_record_lives_by_its_leases() -> None:
    container = MemoryLeases()
    found = FeedRange(id=RangeId("r0"))
    lease = await container.create(
        Lease(range=found, owner=HostName("net"), checkpoint=Checkpoint.of_text("0"))
    )

    async def renew() -> None:
        await asyncio.sleep(17)
        await container.replace(lease.renewed())

    async with asyncio.TaskGroup() as group:
        group.create_task(renew())
        assert await living_hosts(container, make.fleet_watch(), wall=wall) == ["net"]
