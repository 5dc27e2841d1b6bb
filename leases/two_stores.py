"""Ownership and checkpoints kept apart, each where it fits.

Balancing lists ownership only and never touches a checkpoint. What a single document
gives for nothing, that a force-stolen owner's checkpoint finds its version gone, is made here
by the epoch: a host that acquires a lease first raises the epoch of its checkpoint, and
the checkpoint store refuses every write under an older one.

Two stores cannot be written at once. The order of the writes makes that safe: a
checkpoint is written before ownership is passed on, and claimed after ownership was won.
A host that dies in between leaves a lease that expires, and a checkpoint that counts.

What is left when a host dies, or is overtaken, between the two writes of a call:

create     A checkpoint without a lease. The next ``create`` adopts it, and its epoch.
replace    A checkpoint further on, and an owner who has not changed. The progress was
           real, and it is in the claimed epoch, so owner and successor both go on from it.
acquire    A new owner, and a checkpoint still open to the old one. No host reads under
           the new epoch yet. Last writes of the old owner may come in until a host
           claims; the one that claims finds them.
delete     A checkpoint without a lease, as after ``create``. To forget that as well,
           create the lease and delete it again. Who adopts it writes it, so that the one
           that deletes late no longer knows its version, and leaves it. Of a lease that has
           ended, the checkpoint goes first, or the lease stays: its range may come back
           under its name, and does not begin where it was long ago.

A write that is delayed on its way names the version it was meant for. Every later write
and every claim moves that version, so a late write comes in before them or not at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import ListedFleet
from changefeed.leases.errors import LeaseConflict, checkpoint_is_lost
from changefeed.leases.lease import (
    FleetRecord,
    KeptCheckpoint,
    Lease,
    Member,
    Version,
    WriteId,
    require_checkpoint,
)
from changefeed.leases.stored import StoredCheckpoints, StoredOwnership
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.unique_names import unique_name
from changefeed.stores.store import WHOLE, CallLimits

_ATTEMPTS = 10  # each that fails lost to another write


class TwoStoreLeases:
    """A ``LeaseContainer`` made of two stores.

    Where it differs from a single document, a host that keeps to the contract of
    ``LeaseContainer`` need not know:

    - A checkpoint does not move the version of ownership, nor the reverse. A renewal and
      a checkpoint may be under way at once, and a request for the lease disturbs neither.
    - ``write_id`` of a copy that was read names the last write of ownership. A writer
      whose ``checkpoint`` got no answer finds the lease still its own, and writes again.
    - ``checkpoint_epoch`` is stored with ownership, so it follows at the next renewal.
    - ``acquire`` may be cut short between its two writes. Where the second fails, the lease
      is released. A host that finds its ``write_id`` all the same owns the lease, but has not
      shut out the old owner: it must ``acquire`` again, and so must one that was made the owner
      by ``replace``. Each epoch is claimed once, as ownership may be lost, and its epochs.

    A lease whose checkpoint is missing has no position, and takes none from its owner. To
    start over without a word would repeat everything, or skip whatever was written since.
    """

    def __init__(self, ownership: StoredOwnership, checkpoints: StoredCheckpoints) -> None:
        self._ownership = ownership
        self._checkpoints = checkpoints

    @property
    def renew_each(self) -> bool:
        return self._ownership.renew_each

    def bounded(self, bounds: CallLimits) -> "TwoStoreLeases":
        return TwoStoreLeases(
            self._ownership.bounded(bounds), self._checkpoints.bounded(bounds)
        )

    async def members(self) -> Sequence[Member]:
        return await self._ownership.members()

    async def put_member(self, member: Member) -> Member | None:
        return await self._ownership.put_member(member)

    async def remove_member(self, member: Member) -> None:
        await self._ownership.remove_member(member)

    async def fleet(self) -> FleetRecord:
        # Checkpoints last: who finds their id missing does not miss one that comes meanwhile.
        found = await self._ownership.fleet()
        of = await self._checkpoints.fleet()
        if not found.id:  # new, or emptied: its fleet has begun where the other store says
            found = replace(found, feed=of.feed, root=of.root)
        seen = _FleetVersions(
            ownership=found.version, checkpoints=of.version, of=_beginning(of)
        )
        return replace(found, checkpoints=of.id, version=_version(seen))

    async def put_fleet(self, record: FleetRecord) -> FleetRecord | None:
        seen = msgspec.json.decode(record.version, type=_FleetVersions)
        of = FleetRecord(
            id=record.checkpoints, feed=record.feed, root=record.root, version=seen.checkpoints
        )
        # Checkpoints first: the next host goes by them if this one dies in between.
        if _beginning(of) != seen.of and await self._checkpoints.put_fleet(of) is None:
            return None
        written = await self._ownership.put_fleet(replace(record, version=seen.ownership))
        return None if written is None else await self.fleet()

    async def list(self) -> Sequence[Lease]:
        return [_listed(owned) for owned in await self._ownership.list()]

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        fleet = await self._ownership.list_fleet(token, heartbeat)
        return replace(fleet, leases=[_listed(owned) for owned in fleet.leases])

    async def read(self, range_id: RangeId) -> Lease | None:
        for _ in range(_ATTEMPTS):
            # Ownership first: the checkpoint is then no older than what it was passed on with.
            owned = await self._ownership.read(range_id)
            if owned is None:
                return None
            checkpoint = await self._checkpoints.read(range_id)
            if checkpoint is not None:
                return _whole(owned, checkpoint)
            if await self._ownership.read(range_id) == owned:  # else deleted in between
                return _listed(owned)
        raise StoreUnavailable(f"lease {range_id!r} changes faster than it can be read")

    async def create(self, lease: Lease) -> Lease:
        first = _checkpoint_of(lease, Version(""), epoch=lease.epoch)
        first = replace(first, write_id=WriteId(unique_name()))
        for _ in range(_ATTEMPTS):
            # Look first: a wiped checkpoint must not be recreated under a lease in use.
            owned = await self._ownership.read(lease.range_id)
            if owned is not None:
                return _listed(owned)
            checkpoint = await self._create_or_adopt(first)
            if checkpoint is None:
                continue
            # One that was left behind may have been claimed; epochs never go down.
            epoch = max(lease.epoch, checkpoint.epoch)
            bare = replace(lease.without_position(), epoch=epoch)
            assert bare.epoch >= checkpoint.epoch, (
                f"lease {lease.range_id!r} of epoch {bare.epoch} could not checkpoint: its "
                f"checkpoint is claimed for {checkpoint.epoch}"
            )
            return _whole(await self._ownership.create(bare), checkpoint)
        raise StoreUnavailable(
            f"the checkpoint of {lease.range_id!r} changes faster than it can be adopted"
        )

    async def _create_or_adopt(self, first: KeptCheckpoint) -> KeptCheckpoint | None:
        found = await self._checkpoints.create(first)
        if found.write_id == first.write_id:
            return found
        # Left behind: a write shuts out who is still about to delete it.
        return await self._checkpoints.write(replace(found, write_id=first.write_id))

    async def replace(self, lease: Lease) -> Lease:
        if lease.position is None:
            owned = await self._replace_ownership(lease)
            seen = msgspec.structs.replace(_seen(lease), ownership=owned.version)
            return replace(owned, version=_version(seen))
        seen = await self._seen_whole(lease)
        # To hand over begins an epoch, but the next owner claims it: if the second write
        # fails, the present one must still be able to checkpoint.
        epoch = min(lease.epoch, seen.claimed)
        assert epoch <= lease.epoch, f"lease {lease.range_id!r}: claimed for an owner to come"
        checkpoint = await self._write_checkpoint(lease, seen, epoch=epoch)
        return _whole(await self._replace_ownership(lease), checkpoint)

    async def acquire(self, lease: Lease) -> Lease:
        # The position we carry may be an old one, since a checkpoint does not move the
        # version we compete for. What counts is the one that we find and claim.
        owned = await self._replace_ownership(lease)
        try:
            return await self._claimed(lease, owned)
        except StoreUnavailable:
            # Else it would be ours, unread, for as long as the checkpoints fail us alone.
            # Its owner has not begun, so it has not ended well either.
            freed = owned.released()
            freed = replace(freed, deaths=owned.deaths, write_id=WriteId(unique_name()))
            with suppress(LeaseConflict, StoreUnavailable):
                await self._ownership.replace(freed)
            raise

    async def _claimed(self, lease: Lease, owned: Lease) -> Lease:
        """Shut the old owner out of the checkpoint; return the lease whole."""
        for _ in range(_ATTEMPTS):
            stored = await self.read(lease.range_id)
            if stored is None:
                raise LeaseConflict(lease, None, "deleted while it was acquired")
            if stored.position is None:
                if lease.owner is not None or lease.position is None:
                    return _listed(owned)
                # Nobody is to read it before a person who takes it away has said where.
                first = _checkpoint_of(lease, Version(""), epoch=lease.epoch - 1)  # to claim
                await self._checkpoints.create(first)
                continue
            seen = _seen(stored)
            if seen.claimed >= lease.epoch:
                raise LeaseConflict(
                    lease,
                    stored.without_position(),
                    f"its checkpoint is claimed for epoch {seen.claimed}",
                )
            assert seen.checkpoint, f"lease {lease.range_id!r} was read whole: it has one"
            claim = _checkpoint_of(stored, seen.checkpoint, epoch=lease.epoch)
            assert claim.epoch >= seen.claimed, (
                f"lease {lease.range_id!r}: claimed in epoch {seen.claimed}, and now in "
                f"{claim.epoch}"
            )
            checkpoint = await self._checkpoints.write(claim)
            if checkpoint is not None:
                return _whole(owned, checkpoint)
            # Else the old owner's last checkpoint came in: claim that one.
        raise StoreUnavailable(
            f"the checkpoint of {lease.range_id!r} changes faster than it can be claimed"
        )

    async def checkpoint(self, lease: Lease) -> Lease:
        seen = await self._seen_whole(lease)
        checkpoint = await self._write_checkpoint(lease, seen, epoch=lease.epoch)
        written = replace(lease, checkpoint_epoch=lease.epoch, version=seen.ownership)
        return _whole(written, checkpoint)

    async def delete(self, lease: Lease) -> None:
        # Read before: what is written later may belong to a lease that is created meanwhile.
        checkpoint = await self._checkpoints.read(lease.range_id)
        version = _seen(lease).ownership
        first = lease.ended and await self._is_stored(lease.range_id, version)
        if first and checkpoint is not None and not await self._checkpoints.delete(checkpoint):
            why = "its checkpoint was written since it was read"  # or is of a lagging replica
            raise LeaseConflict(lease, lease.without_position(), why)
        with _reraise_for(lease):
            await self._ownership.delete(replace(lease, version=version))
        if checkpoint is not None and not first:
            await self._checkpoints.delete(checkpoint)

    async def _is_stored(self, range_id: RangeId, version: Version) -> bool:
        owned = await self._ownership.read(range_id)
        return owned is not None and owned.version == version

    async def _replace_ownership(self, lease: Lease) -> Lease:
        """Win or lose on ownership alone; the version of the answer is that of its store."""
        bare = replace(lease.without_position(), version=_seen(lease).ownership)
        with _reraise_for(lease):
            return await self._ownership.replace(bare)

    async def _write_checkpoint(
        self, lease: Lease, seen: "_Versions", *, epoch: int
    ) -> KeptCheckpoint:
        assert seen.checkpoint, f"lease {lease.range_id!r}: a checkpoint over what nobody read"
        wanted = _checkpoint_of(lease, seen.checkpoint, epoch=epoch)
        written = await self._checkpoints.write(wanted)
        if written is not None:
            return written
        stored = await self._ownership.read(lease.range_id)
        if stored is None:
            raise LeaseConflict(lease, None)
        now = await self._checkpoints.read(lease.range_id)
        by = "deleted" if now is None else f"written since, in epoch {now.epoch}"
        raise LeaseConflict(lease, _listed(stored), f"its checkpoint was {by}")

    async def _seen_whole(self, lease: Lease) -> "_Versions":
        """Look up the version of the checkpoint, if the copy is from a listing."""
        seen = _seen(lease)
        if seen.checkpoint is not None:
            return seen
        stored = await self.read(lease.range_id)
        if stored is None:
            raise LeaseConflict(lease, None)
        now, bare = _seen(stored), stored.without_position()
        if now.ownership != seen.ownership:
            raise LeaseConflict(lease, bare)
        if now.checkpoint is None:
            raise LeaseConflict(lease, bare, checkpoint_is_lost(lease.range_id))
        return now


class _Versions(msgspec.Struct, frozen=True, array_like=True):
    """What a copy knows of both stores: its version, spelled out."""

    ownership: Version
    checkpoint: Version | None = None
    claimed: int = 0


class _FleetVersions(msgspec.Struct, frozen=True, array_like=True):
    """What a copy of the fleet's record knows of both stores."""

    ownership: Version
    checkpoints: Version
    of: tuple[str, str | None, bool]


def _beginning(record: FleetRecord) -> tuple[str, str | None, bool]:
    """Return what a record says of where its fleet began. The root is settled once."""
    return record.id, record.feed, record.root is not None


def _checkpoint_of(lease: Lease, version: Version | None, *, epoch: int) -> KeptCheckpoint:
    return KeptCheckpoint(
        range_id=lease.range_id,
        checkpoint=require_checkpoint(lease),
        epoch=epoch,
        write_id=lease.write_id,
        version=version or Version(""),
    )


@contextmanager
def _reraise_for(lease: Lease) -> Iterator[None]:
    """Let errors of the ownership store carry the copy that *we* were given."""
    try:
        yield
    except LeaseConflict as error:
        stored = None if error.stored is None else _listed(error.stored)
        raise LeaseConflict(lease, stored, error.reason) from error


def _seen(lease: Lease) -> _Versions:
    try:
        return msgspec.json.decode(lease.version, type=_Versions)
    except (msgspec.DecodeError, ValueError):
        return _Versions(ownership=lease.version)  # not from here: no store will know it


def _version(seen: _Versions | _FleetVersions) -> Version:
    return Version(msgspec.json.encode(seen).decode())


def _listed(owned: Lease) -> Lease:
    return replace(owned, version=_version(_Versions(ownership=owned.version)))


def _whole(owned: Lease, checkpoint: KeptCheckpoint) -> Lease:
    seen = _Versions(
        ownership=owned.version, checkpoint=checkpoint.version, claimed=checkpoint.epoch
    )
    return replace(owned, checkpoint=checkpoint.checkpoint, version=_version(seen))
