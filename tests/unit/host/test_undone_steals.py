"""A story of a host of another kind that writes over what was stolen from it."""

import asyncio
from dataclasses import replace

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.logs import captured_logs

NET = HostName("net")
RENEWED_EVERY = 3.0


class Stubborn:
    """Writes its leases without looking at their versions, as .NET does those of a split."""

    def __init__(self, leases: LeaseContainer) -> None:
        self._leases = leases
        self.looks = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY)
            for lease in await self._leases.list():
                if lease.owner == NET or not self.looks:
                    await self._leases.replace(_renewed(lease))


def _renewed(lease: Lease) -> Lease:
    epoch = lease.epoch + (lease.owner != NET)
    bare = replace(lease.renewed(), incarnation=None, next_owner=None, cooling=False)
    return replace(bare, owner=NET, epoch=epoch)


async def test_a_lease_whose_steal_was_undone_is_left_alone_for_longer_each_time() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    for n in range(2):
        created = await leases.create(make.lease(f"r{n}", at="0"))
        await leases.replace(_renewed(created))
    neighbour = Stubborn(leases)
    renewing = asyncio.create_task(neighbour.run())
    async with Fleet(feed, leases) as fleet:
        with captured_logs("DEBUG") as logs:
            fleet.start("a")
            await asyncio.sleep(600)
        stolen = [x for x in logs if x["event"] == "lease.acquired"]
        assert {x["how"] for x in stolen} == {"stolen"}
        assert 4 < len(stolen) < 12, len(stolen)
        neighbour.looks = True
        await asyncio.sleep(120)
        assert await fleet.loads() == {"a": 1}
    renewing.cancel()
