"""Ownership and checkpoints kept apart, each where it fits.

Balancing lists ownership only and never touches a checkpoint. What a single document
gives for nothing, that a robbed owner's checkpoint finds its version gone, is made here
by the epoch: whoever acquires a lease first raises the epoch of its checkpoint, and
the checkpoint store refuses every write under an older one.

Two stores cannot be written at once. The order of the writes makes that safe: a
checkpoint is written before ownership is passed on, and claimed after ownership was won.
A host that dies in between leaves a lease that expires, and a checkpoint that counts.
"""

from collections.abc import Sequence
from typing import Protocol

from feeds.feed import RangeId

from .container import Members
from .lease import Checkpoint, Lease


class OwnershipStore(Members, Protocol):
    """Keeps leases without their continuations: as ``LeaseContainer``, but for those."""

    async def list(self) -> Sequence[Lease]: ...

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
        """Write it if its version still stands and no later epoch has claimed the range.

        Return the stored copy, with its new version; raise ``CheckpointConflict`` if
        there is none or it is not the one we read.
        """
        ...

    async def delete(self, range_id: RangeId) -> None:
        """Forget it, if it is there."""
        ...
