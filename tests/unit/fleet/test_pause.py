import asyncio

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.fleet.claims import pause
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from tests.support import make

R0, R1, R2 = (RangeId(f"r{n}") for n in range(3))


async def three_leases() -> MemoryLeases:
    leases = MemoryLeases()
    for name in (R0, R1, R2):
        await leases.create(make.lease(name, at="7"))
    return leases


async def paused(leases: MemoryLeases) -> dict[str, str]:
    return {x.range_id: x.paused for x in await leases.list() if x.paused is not None}


async def test_a_lease_that_others_never_stop_writing_is_given_up() -> None:
    leases = await three_leases()

    class Busy(MemoryLeases):
        async def replace(self, lease: Lease) -> Lease:
            raise LeaseConflict(lease, lease)

    busy = Busy()
    await busy.create(make.lease(at="7"))
    with pytest.raises(LeaseConflict):
        await pause(busy, None, "x")
    assert asyncio.get_running_loop().time() < 3
    assert await paused(leases) == {}
