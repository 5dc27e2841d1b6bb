"""Each write that an owner makes of its lease has a name of its own."""

import asyncio
from collections import Counter

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.lease import Lease, WriteId
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support.looking import start


class Writes(MemoryLeases):
    """Counts the names of the writes that owners made, one for each kind and range."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Counter[WriteId | None]()
        self.kinds = Counter[str]()

    async def acquire(self, lease: Lease) -> Lease:
        return self._noted("acquire", await super().acquire(lease))

    async def checkpoint(self, lease: Lease) -> Lease:
        return self._noted("checkpoint", await super().checkpoint(lease))

    async def replace(self, lease: Lease) -> Lease:
        before = await self.read(lease.range_id)
        written = await super().replace(lease)
        # What a host asks of another's lease leaves the name of the owner's last write there.
        of_owner = before is not None and before.sign_of_life != written.sign_of_life
        return self._noted("replace", written) if of_owner else written

    def _noted(self, kind: str, lease: Lease) -> Lease:
        self.names[lease.write_id] += 1
        self.kinds[kind] += 1
        return lease


@pytest.mark.parametrize("killed", [False, True])
async def test_no_two_writes_of_owners_have_one_name(*, killed: bool) -> None:
    feed, leases = MemoryFeed(6), Writes()
    async with Fleet(feed, leases) as fleet:
        start(fleet, "ab")
        for n in range(60):
            feed.append(f"key-{n}")
            await asyncio.sleep(1)
        feed.split_range(RangeId("r0"))
        start(fleet, "c")
        await asyncio.sleep(60)
        if killed:
            await fleet.kill("b")
            await asyncio.sleep(20)
            start(fleet, "bde")
        else:
            await fleet.stop("b")
        await asyncio.sleep(60)
        for name in [*fleet.running]:
            await fleet.stop(name)
    assert min(leases.kinds[x] for x in ("acquire", "checkpoint", "replace")) > 6, leases.kinds
    assert {x: n for x, n in leases.names.items() if n > 1 or not x} == {}
