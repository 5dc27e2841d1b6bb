"""Lease containers over conditional writes: what PostgreSQL, Redis and Azure Blob share.

A server decides who wins by one request: *write this, if the version is unchanged*. The
classes here turn that answer into the errors of the contract, and ask for the reason only
after a write was refused. Every write brings a version of its own (a random token, or the
server's etag), which is never used twice, not even after a server was restored from a
backup or lost what it kept: a counter would begin again and let an old copy win.

A table answers ``None`` for a refused write, and raises ``ContainerUnavailable`` where a
write may have happened. A table that sends a request again by itself must know its own
write when it finds it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from changefeed.feeds.feed import RangeId
from changefeed.leases.errors import (
    ContainerUnavailable,
    LeaseConflict,
    LeaseError,
    LeaseGone,
    MemberConflict,
)
from changefeed.leases.lease import Checkpoint, Lease, Member, Version
from changefeed.leases.listing import ListedChanges, ListedFleet
from changefeed.leases.stores import CheckpointConflict, require_continuation
from changefeed.leases.tables import Record, changes_of

_ATTEMPTS = 10


class ConditionalTable(Protocol[Record]):
    """Keeps records by a key. Raises ``ContainerUnavailable`` and ``ContainerRefused``."""

    async def all(self) -> Sequence[Record]:
        """Return every record; leases without their continuations."""
        ...

    async def get(self, key: str) -> Record | None: ...

    async def insert(self, key: str, record: Record) -> Record | None:
        """Return the copy as stored, or ``None`` if there is a record already."""
        ...

    async def update(self, key: str, record: Record) -> Record | None:
        """Write the record if its version is unchanged, and return the copy as stored.

        A lease without a continuation leaves the stored one; the copy that is returned
        carries what is stored then.
        """
        ...

    async def delete(self, key: str, version: Version) -> bool:
        """Delete it if its version is unchanged."""
        ...


class ConditionalLeaseTable(ConditionalTable[Lease], Protocol):
    """A table of leases with their checkpoints in them."""

    async def advance(self, key: str, lease: Lease) -> Lease | None:
        """Write checkpoint and write id of the lease, if version and epoch are unchanged."""
        ...


def short_key(text: str, longest: int) -> str:
    """Return a key no longer than ``longest`` characters: the text itself, where it fits."""
    if len(text) <= longest:
        return text
    return f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"


class FeedText(Protocol):
    """Keeps one text of a fleet: which feed its leases are about."""

    async def get(self) -> str | None: ...

    async def put(self, identity: str) -> None:
        """Write it, over what was kept before."""
        ...


class FleetTable(Protocol):
    """The tables of leases and of members, in one request."""

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet | None:
        """As a ``ListsFleet``: insert or update the heartbeat, if its version is unchanged."""
        ...


class ConditionalMembers:
    def __init__(self, members: ConditionalTable[Member], feed: FeedText) -> None:
        self._members = members
        self._feed = feed

    async def feed_identity(self) -> str | None:
        return await self._feed.get()

    async def keep_feed_identity(self, identity: str) -> None:
        await self._feed.put(identity)

    async def members(self) -> Sequence[Member]:
        return await self._members.all()

    async def put_member(self, member: Member) -> Member:
        put = self._members.update if member.version else self._members.insert
        written = await put(member.name, member)
        if written is not None:
            return written
        stored = await self._members.get(member.name)
        if stored is None:
            raise MemberConflict(member, "its member record was removed")
        raise MemberConflict(
            member, f"its member record was written by incarnation {stored.incarnation!r}"
        )

    async def remove_member(self, member: Member) -> None:
        await self._members.delete(member.name, member.version)


class ConditionalOwnership(ConditionalMembers):
    """Ownership without continuations: an ``OwnershipStore``."""

    def __init__(
        self,
        leases: ConditionalTable[Lease],
        members: ConditionalTable[Member],
        feed: FeedText,
        fleet: FleetTable | None = None,
    ) -> None:
        super().__init__(members, feed)
        self._leases = leases
        self._fleet = fleet

    async def list(self) -> Sequence[Lease]:
        return await self._leases.all()

    async def changes_since(self, token: str) -> ListedChanges | None:
        return await changes_of(self._leases, token)

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet | None:
        return None if self._fleet is None else await self._fleet.list_fleet(token, heartbeat)

    async def read(self, range_id: RangeId) -> Lease | None:
        return await self._leases.get(range_id)

    async def create(self, lease: Lease) -> Lease:
        return await self._created(lease.without_continuation())

    async def replace(self, lease: Lease) -> Lease:
        return await self._updated(lease.without_continuation(), lease)

    async def delete(self, lease: Lease) -> None:
        if not await self._leases.delete(lease.range_id, lease.version):
            raise await self._refusal(lease)

    async def _created(self, lease: Lease) -> Lease:
        for _ in range(_ATTEMPTS):
            written = await self._leases.insert(lease.range_id, lease)
            stored = written or await self._leases.get(lease.range_id)
            if stored is not None:
                return stored
        raise ContainerUnavailable(
            f"lease {lease.range_id!r} is created and deleted faster than it can be read"
        )

    async def _updated(self, wanted: Lease, given: Lease) -> Lease:
        written = await self._leases.update(wanted.range_id, wanted)
        if written is None:
            raise await self._refusal(given)
        return written

    async def _refusal(self, lease: Lease) -> LeaseError:
        """Say why a write of ``lease`` was refused: by what is stored by now."""
        stored = await self._leases.get(lease.range_id)
        if stored is None:
            return LeaseGone(lease, "there is no such lease")
        if stored.version == lease.version:
            return LeaseConflict(
                lease,
                f"a checkpoint of epoch {lease.epoch}, but epoch {stored.epoch} has begun",
            )
        return LeaseConflict(
            lease, f"written since; now owned by {stored.owner!r} in epoch {stored.epoch}"
        )


class ConditionalLeases(ConditionalOwnership):
    """Ownership and checkpoint in one record: a ``LeaseContainer``."""

    def __init__(
        self,
        leases: ConditionalLeaseTable,
        members: ConditionalTable[Member],
        feed: FeedText,
        fleet: FleetTable | None = None,
    ) -> None:
        super().__init__(leases, members, feed, fleet)
        self._whole = leases

    async def create(self, lease: Lease) -> Lease:
        require_continuation(lease)
        return await self._created(lease)

    async def replace(self, lease: Lease) -> Lease:
        written = await self._updated(lease, lease)
        return written if lease.continuation is not None else written.without_continuation()

    async def acquire(self, lease: Lease) -> Lease:
        # One record, one version: a writer that has not read this write cannot checkpoint.
        return await self._updated(lease.without_continuation(), lease)

    async def checkpoint(self, lease: Lease) -> Lease:
        require_continuation(lease)
        written = await self._whole.advance(lease.range_id, lease)
        if written is None:
            raise await self._refusal(lease)
        return written


class ConditionalCheckpoints:
    """A ``CheckpointStore``.

    Its versions are those of the table with the epoch of the checkpoint before them: a
    writer that knows the version in force knows which epoch has claimed the range.
    """

    def __init__(self, checkpoints: ConditionalTable[Checkpoint]) -> None:
        self._checkpoints = checkpoints

    async def read(self, range_id: RangeId) -> Checkpoint | None:
        stored = await self._checkpoints.get(range_id)
        return None if stored is None else _with_epoch(stored)

    async def create(self, checkpoint: Checkpoint) -> Checkpoint:
        for _ in range(_ATTEMPTS):
            written = await self._checkpoints.insert(checkpoint.range_id, checkpoint)
            stored = written or await self._checkpoints.get(checkpoint.range_id)
            if stored is not None:
                return _with_epoch(stored)
        raise ContainerUnavailable(
            f"the checkpoint of {checkpoint.range_id!r} is created and deleted faster than "
            "it can be read"
        )

    async def write(self, checkpoint: Checkpoint) -> Checkpoint:
        name = f"the checkpoint of {checkpoint.range_id!r}"
        epoch, _, version = checkpoint.version.partition(" ")
        if epoch.isdecimal() and int(epoch) > checkpoint.epoch:
            raise CheckpointConflict(f"{name} was claimed for epoch {epoch}")
        wanted = replace(checkpoint, version=Version(version))
        written = await self._checkpoints.update(checkpoint.range_id, wanted)
        if written is not None:
            return _with_epoch(written)
        if await self._checkpoints.get(checkpoint.range_id) is None:
            raise CheckpointConflict(f"{name} is not there")
        raise CheckpointConflict(f"{name} was written since it was read")

    async def delete(self, checkpoint: Checkpoint) -> None:
        _, _, version = checkpoint.version.partition(" ")
        await self._checkpoints.delete(checkpoint.range_id, Version(version))


def _with_epoch(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, version=Version(f"{checkpoint.epoch} {checkpoint.version}"))
