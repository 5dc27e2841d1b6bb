"""What one host has seen of leases, for the day on which one of them is deleted.

A lease document that is deleted by hand takes its epoch and its checkpoint with it. Epochs
must not go down: what was stored under a high one (by an observer that compares
``context.epoch``, or a process that was frozen) would shut out the new owners. So a host
remembers what it has listed and written, begins what it creates again where that ended, and
acquires nothing under an epoch that it has seen.

Limits: it is this host's memory. If no host runs that has seen the lease, the epoch begins at
1 again, except where checkpoints are kept apart: these know their epoch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from changefeed.feeds.feed import Continuation, RangeId
from changefeed.leases.container import LeaseContainer, ListedFleet
from changefeed.leases.lease import End, Lease, Member
from changefeed.stores.store import WHOLE


class LeaseMemory:
    """The highest epoch of each range, and where its checkpoint was if that is known."""

    def __init__(self) -> None:
        self._epochs: dict[RangeId, int] = {}
        self._checkpoints: dict[RangeId, tuple[int, Continuation]] = {}

    def note(self, leases: Iterable[Lease]) -> None:
        """Take in leases as they are stored, or were before what is known already."""
        for lease in leases:
            name = lease.range_id
            if lease.epoch < self._epochs.get(name, 0):
                continue  # an answer that was overtaken by a newer one
            self._epochs[name] = lease.epoch
            if lease.ended:
                self._checkpoints.pop(name, None)
                continue
            if lease.continuation is not None:
                self._checkpoints[name] = (lease.epoch, lease.continuation)

    def knows_start_of(self, range_id: RangeId) -> bool:
        """Whether it is known where a lease begins that is created again: where the last one
        was, or at ``feed.start``, as it has never had an owner.
        """
        epoch = self._epochs.get(range_id, 0)
        begun_in, _ = self._checkpoints.get(range_id, (0, None))
        return begun_in == epoch

    def knows_checkpoint_of(self, range_id: RangeId) -> bool:
        """Whether it is known how far the range was read, in the last epoch that was seen."""
        return range_id in self._checkpoints and self.knows_start_of(range_id)

    def recreated(self, lease: Lease) -> Lease:
        """Begin a lease that is to be created where the deleted one of its range was.

        Its checkpoint is used only if no other epoch has begun since, as far as was seen.
        """
        epoch = max(lease.epoch, self._epochs.get(lease.range_id, 0))
        begun_in, checkpoint = self._checkpoints.get(lease.range_id, (-1, None))
        assert begun_in <= epoch, (
            f"lease {lease.range_id!r}: a checkpoint of epoch {begun_in}, and {epoch} was seen"
        )
        if begun_in != epoch or checkpoint is None:
            return replace(lease, epoch=epoch)
        return replace(lease, epoch=epoch, continuation=checkpoint)

    def above(self, lease: Lease) -> Lease:
        """Raise the epoch under which a lease is to be acquired above all that were seen."""
        seen = self._epochs.get(lease.range_id, 0)
        raised = lease if lease.epoch > seen else replace(lease, epoch=seen + 1)
        assert raised.epoch >= lease.epoch, (
            f"lease {lease.range_id!r}: epoch {lease.epoch} would go back to {raised.epoch}"
        )
        return raised


class RememberingContainer:
    """Wraps a container: what it answers is remembered, and epochs only rise."""

    def __init__(self, container: LeaseContainer, memory: LeaseMemory) -> None:
        self._container = container
        self._memory = memory

    @property
    def renew_each(self) -> bool:
        return self._container.renew_each

    async def list(self) -> Sequence[Lease]:
        leases = await self._container.list()
        self._memory.note(leases)
        return leases

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        fleet = await self._container.list_fleet(token, heartbeat)
        self._memory.note(fleet.leases)
        return fleet

    async def read(self, range_id: RangeId) -> Lease | None:
        lease = await self._container.read(range_id)
        self._memory.note([] if lease is None else [lease])
        return lease

    async def create(self, lease: Lease) -> Lease:
        return self._noted(await self._container.create(lease))

    async def replace(self, lease: Lease) -> Lease:
        return self._noted(await self._container.replace(lease))

    async def acquire(self, lease: Lease) -> Lease:
        return self._noted(await self._container.acquire(self._memory.above(lease)))

    async def checkpoint(self, lease: Lease) -> Lease:
        return self._noted(await self._container.checkpoint(lease))

    async def delete(self, lease: Lease) -> None:
        await self._container.delete(lease)

    async def feed_identity(self) -> str | None:
        return await self._container.feed_identity()

    async def keep_feed_identity(self, identity: str) -> None:
        await self._container.keep_feed_identity(identity)

    async def root(self) -> End | None:
        return await self._container.root()

    async def settle_root(self, root: End) -> End:
        return await self._container.settle_root(root)

    async def members(self) -> Sequence[Member]:
        return await self._container.members()

    async def put_member(self, member: Member) -> Member:
        return await self._container.put_member(member)

    async def remove_member(self, member: Member) -> None:
        await self._container.remove_member(member)

    def _noted(self, lease: Lease) -> Lease:
        self._memory.note([lease])
        return lease
