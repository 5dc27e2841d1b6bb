from dataclasses import replace

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.lease import HostName, Incarnation, Lease, WriteId
from changefeed.leases.memory import MemoryLeases

R0 = RangeId("r0")
NEW = Lease(range=FeedRange(id=R0), continuation=Continuation("c0"))


async def test_a_checkpoint_in_one_record_with_ownership_names_its_write() -> None:
    leases = MemoryLeases()
    lease = await leases.create(NEW)
    owned = await leases.acquire(lease.taken_by(HostName("a"), Incarnation("1")))
    wanted = owned.advanced_to(Continuation("c1"))
    await leases.checkpoint(replace(wanted, write_id=WriteId("w1")))
    found = await leases.read(R0)
    assert found is not None
    assert (found.write_id, found.checkpoint_epoch, found.continuation) == ("w1", 1, "c1")


async def test_the_same_calls_give_the_same_versions() -> None:
    async def versions() -> list[str]:
        leases = MemoryLeases()
        lease = await leases.create(NEW)
        return [lease.version, (await leases.replace(lease)).version]

    assert await versions() == await versions() == ["1", "2"]
