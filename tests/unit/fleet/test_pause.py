import asyncio

import pytest

from changefeed.fleet.claims import pause
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from tests.support import make


class Busy(MemoryLeases):
    async def replace(self, lease: Lease) -> Lease:
        raise LeaseConflict(lease, lease)


async def test_a_lease_that_others_never_stop_writing_is_given_up() -> None:
    busy = Busy()
    await busy.create(make.lease(at="7"))
    with pytest.raises(LeaseConflict):
        await pause(busy, None, "x")
    assert asyncio.get_running_loop().time() < 3
    assert [x.paused for x in await busy.list()] == [None]
