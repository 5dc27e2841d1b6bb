"""Who lives, seen from outside."""

import asyncio
from collections.abc import Sequence

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.fleet.claims import pause
from changefeed.fleet.liveness import living_hosts
from changefeed.fleet.reset import refuse_in_use
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import UserError
from changefeed.testing import Fleet
from tests.support import make
from tests.support.looking import now, wall


async def test_dead_hosts_are_watched_for_a_whole_expiration() -> None:
    async with Fleet(ranges=2) as fleet:
        fleet.start("a")
        await fleet.balanced()
        await fleet.kill("a")
        began = now()
        assert await living_hosts(fleet.container, make.fleet_watch(), wall=wall) == {}
        assert 30 <= now() - began < 31


async def test_a_living_host_keeps_the_ranges_in_use_that_it_reads_and_no_other() -> None:
    async with Fleet(ranges=2) as fleet:
        container = fleet.container
        fleet.start("a")
        await fleet.balanced()
        for name in (RangeId("r0"), RangeId("r1")):
            began = now()
            with pytest.raises(UserError, match="pause the range first"):
                await refuse_in_use(container, [name], make.fleet_watch(), wall=wall)
            assert 0 < now() - began < 11
            await pause(container, [name], "to reset it")
            await asyncio.sleep(10)
            async with asyncio.timeout(0.1):  # one look
                await refuse_in_use(container, [name], make.fleet_watch(), wall=wall)
        watched = list[Sequence[str]]()
        watch = make.fleet_watch()
        living = await living_hosts(container, watch, watching=watched.append, wall=wall)
        assert living == {"a": ""}
        assert watched == [["a"]]


async def test_a_foreign_owner_without_a_record_lives_by_its_leases() -> None:
    container = MemoryLeases()
    lease = await container.create(make.lease("r0", "net", at="0"))

    async def renew() -> None:
        await asyncio.sleep(17)
        await container.replace(lease.renewed())

    async with asyncio.TaskGroup() as group:
        group.create_task(renew())
        assert await living_hosts(container, make.fleet_watch(), wall=wall) == {"net": "r0"}
