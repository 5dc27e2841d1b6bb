"""Lease containers over tables of records: what those in memory and in SQLite share.

The rules of the contract are here once, as plain functions from what is stored and
what a caller wants to write to what is stored next. A table only has to read a record,
ask such a function and write its answer, without another write in between. A store that cannot
do that (it has no transactions, or a call costs a journey) is better served by its own
conditional writes, and does not use this module.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from changefeed.feeds.feed import RangeId
from changefeed.leases.errors import LeaseConflict, LeaseGone, MemberConflict
from changefeed.leases.lease import Checkpoint, Lease, Member
from changefeed.leases.listing import ListedChanges
from changefeed.leases.stores import CheckpointConflict, require_continuation

Record = TypeVar("Record", Lease, Checkpoint, Member)


class Keep(enum.Enum):
    """An answer of its own, because an equal record may still be a write."""

    KEEP = enum.auto()


KEEP = Keep.KEEP
Decision: TypeAlias = Record | Literal[Keep.KEEP] | None
"""What to write next; ``None`` deletes, ``KEEP`` leaves what is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges(Generic[Record]):
    """``total`` is how many records there are; ``token`` is where the next question begins."""

    records: Sequence[Record]
    total: int
    token: str


class Table(Protocol[Record]):
    """Keeps records by a key. Raises ``ContainerUnavailable`` and ``ContainerRefused``."""

    async def all(self) -> Sequence[Record]:
        """Return every record; leases may come without their continuations."""
        ...

    async def get(self, key: str) -> Record | None: ...

    async def change(
        self, key: str, decide: Callable[[Record | None], Decision[Record]]
    ) -> Record | None:
        """Read a record and write what ``decide`` makes of it; no write comes between.

        A write gets a version that was never used before. Return what is stored then.
        What ``decide`` raises goes through, and nothing is written.
        """
        ...


@runtime_checkable
class ChangesTable(Protocol):
    """A table of leases that can also say what has changed."""

    async def changes_since(self, token: str) -> TableChanges[Lease] | None:
        """Return the records of ``all`` that were written since ``token`` was given.

        ``None`` if that cannot be said after all.
        """
        ...


async def changes_of(leases: object, token: str) -> ListedChanges | None:
    """List what has changed, if the table can say; without continuations."""
    if not isinstance(leases, ChangesTable):
        return None
    changes = await leases.changes_since(token)
    return None if changes is None else listed_changes(changes)


def listed_changes(changes: TableChanges[Lease]) -> ListedChanges:
    found = [x.without_continuation() for x in changes.records]
    return ListedChanges(leases=found, total=changes.total, token=changes.token)


class TableMembers:
    def __init__(self, members: Table[Member]) -> None:
        self._members = members

    async def members(self) -> Sequence[Member]:
        return await self._members.all()

    async def put_member(self, member: Member) -> Member:
        written = await self._members.change(member.name, lambda x: member_put(x, member))
        assert written is not None
        return written

    async def remove_member(self, member: Member) -> None:
        await self._members.change(member.name, lambda x: member_removed(x, member))


class TableOwnership(TableMembers):
    """Ownership without continuations: an ``OwnershipStore``."""

    def __init__(self, leases: Table[Lease], members: Table[Member]) -> None:
        super().__init__(members)
        self._leases = leases

    async def list(self) -> Sequence[Lease]:
        return await self._leases.all()

    async def changes_since(self, token: str) -> ListedChanges | None:
        return await changes_of(self._leases, token)

    async def read(self, range_id: RangeId) -> Lease | None:
        return await self._leases.get(range_id)

    async def create(self, lease: Lease) -> Lease:
        bare = lease.without_continuation()
        return await self._write(lease, lambda stored: KEEP if stored else bare)

    async def replace(self, lease: Lease) -> Lease:
        bare = lease.without_continuation()
        return await self._write(lease, lambda stored: owned(stored, bare))

    async def delete(self, lease: Lease) -> None:
        await self._leases.change(lease.range_id, lambda stored: deleted(stored, lease))

    async def _write(
        self, lease: Lease, decide: Callable[[Lease | None], Decision[Lease]]
    ) -> Lease:
        written = await self._leases.change(lease.range_id, decide)
        assert written is not None
        return written


class TableLeases(TableOwnership):
    """Ownership and checkpoint in one record: a ``LeaseContainer``."""

    async def list(self) -> Sequence[Lease]:
        return [lease.without_continuation() for lease in await self._leases.all()]

    async def create(self, lease: Lease) -> Lease:
        require_continuation(lease)
        return await self._write(lease, lambda stored: KEEP if stored else lease)

    async def replace(self, lease: Lease) -> Lease:
        written = await self._write(lease, lambda stored: replaced(stored, lease))
        return written if lease.continuation is not None else written.without_continuation()

    async def acquire(self, lease: Lease) -> Lease:
        # One record, one version: a host that has not read this write cannot checkpoint.
        bare = lease.without_continuation()
        return await self._write(lease, lambda stored: replaced(stored, bare))

    async def checkpoint(self, lease: Lease) -> Lease:
        return await self._write(lease, lambda stored: checkpointed(stored, lease))


class TableCheckpoints:
    """A ``CheckpointStore``."""

    def __init__(self, checkpoints: Table[Checkpoint]) -> None:
        self._checkpoints = checkpoints

    async def read(self, range_id: RangeId) -> Checkpoint | None:
        return await self._checkpoints.get(range_id)

    async def create(self, checkpoint: Checkpoint) -> Checkpoint:
        return await self._write(checkpoint, lambda stored: KEEP if stored else checkpoint)

    async def write(self, checkpoint: Checkpoint) -> Checkpoint:
        return await self._write(checkpoint, lambda stored: overwritten(stored, checkpoint))

    async def delete(self, checkpoint: Checkpoint) -> None:
        await self._checkpoints.change(checkpoint.range_id, lambda x: forgotten(x, checkpoint))

    async def _write(
        self,
        checkpoint: Checkpoint,
        decide: Callable[[Checkpoint | None], Decision[Checkpoint]],
    ) -> Checkpoint:
        written = await self._checkpoints.change(checkpoint.range_id, decide)
        assert written is not None
        return written


def owned(stored: Lease | None, lease: Lease) -> Lease:
    """Overwrite ownership, where nothing else is kept."""
    _unmoved(stored, lease)
    return lease


def replaced(stored: Lease | None, lease: Lease) -> Lease:
    """Overwrite everything, except the continuation if ``lease`` carries none."""
    present = _unmoved(stored, lease)
    if lease.continuation is not None:
        return lease
    return replace(lease, continuation=present.continuation)


def checkpointed(stored: Lease | None, lease: Lease) -> Lease:
    """Overwrite the checkpoint, and nothing else but the name of the write."""
    present = _unmoved(stored, lease)
    if present.epoch != lease.epoch:
        raise LeaseConflict(
            lease, f"a checkpoint of epoch {lease.epoch}, but epoch {present.epoch} has begun"
        )
    return replace(
        present,
        continuation=require_continuation(lease),
        checkpoint_epoch=lease.epoch,
        write_id=lease.write_id,
    )


def deleted(stored: Lease | None, lease: Lease) -> None:
    _unmoved(stored, lease)


def _unmoved(stored: Lease | None, lease: Lease) -> Lease:
    if stored is None:
        raise LeaseGone(lease, "there is no such lease")
    if stored.version != lease.version:
        raise LeaseConflict(
            lease, f"written since; now owned by {stored.owner!r} in epoch {stored.epoch}"
        )
    return stored


def overwritten(stored: Checkpoint | None, checkpoint: Checkpoint) -> Checkpoint:
    name = f"the checkpoint of {checkpoint.range_id!r}"
    if stored is None:
        raise CheckpointConflict(f"{name} is not there")
    if stored.version != checkpoint.version:
        raise CheckpointConflict(f"{name} was written since it was read")
    if stored.epoch > checkpoint.epoch:
        raise CheckpointConflict(f"{name} was claimed for epoch {stored.epoch}")
    return checkpoint


def forgotten(stored: Checkpoint | None, checkpoint: Checkpoint) -> Decision[Checkpoint]:
    unchanged = stored is not None and stored.version == checkpoint.version
    return None if unchanged else KEEP


def member_put(stored: Member | None, member: Member) -> Member:
    if stored is None and member.version:
        raise MemberConflict(member, "its member record was removed")
    if stored is not None and stored.version != member.version:
        raise MemberConflict(
            member, f"its member record was written by incarnation {stored.incarnation!r}"
        )
    return member


def member_removed(stored: Member | None, member: Member) -> Decision[Member]:
    unchanged = stored is not None and stored.version == member.version
    return None if unchanged else KEEP
