"""A lease that an operator takes away: what its owner, and the next one, make of it."""

import pytest

from changefeed.feeds.feed import Position, RangeId
from changefeed.fleet.claims import release
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership

R0 = RangeId("r0")
ANNA = HostName("anna")


async def one_lease(container: MemoryLeases | TwoStoreLeases) -> Lease:
    return await container.create(make.lease(at="7"))


async def stored(container: MemoryLeases | TwoStoreLeases) -> Lease:
    lease = await container.read(R0)
    assert lease is not None
    return lease


@pytest.mark.parametrize(
    "make",
    [MemoryLeases, lambda: TwoStoreLeases(MemoryOwnership(), MemoryCheckpoints())],
    ids=["together", "apart"],
)
async def test_a_former_owner_can_write_neither_a_renewal_nor_a_checkpoint(
    make: type[MemoryLeases],
) -> None:
    container = make()
    taken = (await one_lease(container)).taken_by(ANNA, Incarnation("1"))
    owned = await container.acquire(taken)
    before = await release(container, R0)
    assert before is not None
    assert (before.owner, before.epoch) == (ANNA, 1)
    now = await stored(container)
    assert (now.owner, now.incarnation, now.epoch, now.position) == (None, None, 2, "7")
    with pytest.raises(LeaseConflict):
        await container.replace(owned.renewed())
    with pytest.raises(LeaseConflict):
        await container.checkpoint(owned.advanced_to(Position("9")))
    assert (await stored(container)).position == "7"


async def test_what_nobody_owns_is_left_alone_and_what_is_not_there_is_told() -> None:
    container = MemoryLeases()
    before = await one_lease(container)
    assert await release(container, R0) is None
    assert (await stored(container)).version == before.version
    with pytest.raises(LeaseConflict, match="no such lease"):
        await release(container, RangeId("r9"))
