"""The two halves of a lease container: ownership alone, and checkpoints alone."""

from collections.abc import Sequence
from typing import Protocol

from changefeed.feeds.feed import Continuation, RangeId
from changefeed.leases.container import ListedFleet, Members
from changefeed.leases.lease import Checkpoint, Lease, Member
from changefeed.leases.store import WHOLE


class OwnershipStore(Members, Protocol):
    """Keeps leases without their continuations: as ``LeaseContainer``, but for those."""

    async def list(self) -> Sequence[Lease]: ...

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet: ...

    async def read(self, range_id: RangeId) -> Lease | None: ...

    async def create(self, lease: Lease) -> Lease: ...

    async def replace(self, lease: Lease) -> Lease: ...

    async def delete(self, lease: Lease) -> None: ...


class CheckpointConflict(Exception):
    """The stored checkpoint has another version, or was claimed for a later epoch."""


class CheckpointStore(Protocol):
    """Keeps one checkpoint for each range. Raises ``ContainerUnavailable`` as containers do."""

    async def read(self, range_id: RangeId) -> Checkpoint | None: ...

    async def create(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a first checkpoint, or return the one that is there."""
        ...

    async def write(self, checkpoint: Checkpoint) -> Checkpoint:
        """Write it if its version is unchanged and no later epoch has claimed the range.

        Return the stored copy, with its new version; raise ``CheckpointConflict`` if
        there is none or it is not the one we read.
        """
        ...

    async def delete(self, checkpoint: Checkpoint) -> None:
        """Forget it, if its version is unchanged; one that was written since stays."""
        ...


def require_continuation(lease: Lease) -> Continuation:
    """Return the continuation of a lease that must have one."""
    if lease.continuation is None:
        raise ValueError(
            f"the lease of {lease.range_id!r} carries no continuation; a new one starts from"
            " where the feed settled, a checkpoint is made by advanced_to()"
        )
    return lease.continuation
