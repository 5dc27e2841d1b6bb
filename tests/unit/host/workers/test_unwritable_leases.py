"""A host whose lease writes are refused: what it delivers then may come twice."""

import asyncio

from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.lease import Lease, Member
from changefeed.leases.memory import MemoryLeases
from tests.support import make

PAGE = 10


class LeasesThatRefuse(MemoryLeases):
    """Refuses the writes of one host, from a moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: str | None = None

    async def replace(self, lease: Lease) -> Lease:
        self._refuse(lease.owner)
        return await super().replace(lease)

    async def acquire(self, lease: Lease) -> Lease:
        self._refuse(lease.owner)
        return await super().acquire(lease)

    async def checkpoint(self, lease: Lease) -> Lease:
        self._refuse(lease.owner)
        return await super().checkpoint(lease)

    async def put_member(self, member: Member) -> Member:
        self._refuse(member.name)
        return await super().put_member(member)

    def _refuse(self, writer: str | None) -> None:
        if writer is not None and writer == self.refused:
            raise ContainerUnavailable("503")


async def test_it_delivers_nothing_that_it_cannot_checkpoint_and_its_heir_goes_on_there() -> (
    None
):
    leases = LeasesThatRefuse()
    sections = {"feed": {"page_size": PAGE}}
    feed = make.memory_feed(1, 600)
    async with make.fleet(sections, feed=feed, container=leases, pace=0.1) as fleet:
        fleet.start("anna")
        await asyncio.sleep(15)
        leases.refused = "anna"
        await asyncio.sleep(5)
        fleet.start("bella")
        await fleet.caught_up()
        assert fleet.log.repeats <= 3 * PAGE
        assert len(fleet.log.times) == 600


async def test_it_goes_on_by_itself_once_its_writes_are_taken_again() -> None:
    leases = LeasesThatRefuse()
    feed = make.memory_feed(1, 600)
    async with make.fleet(feed=feed, container=leases, pace=0.1) as fleet:
        fleet.start("anna")
        await asyncio.sleep(5)
        leases.refused = "anna"
        await asyncio.sleep(10)
        leases.refused = None
        await fleet.caught_up()
        assert fleet.log.repeats == 0
