"""Leases, checkpoints and members as records of a store: what each backend has in common.

A version here is that of the store with the epoch before it. So a checkpoint under another
epoch than the one that was read is refused before it is sent, and one that is sent meets the
version that the acquisition has moved: after a host has acquired a lease, nobody writes under
an older epoch.
"""

from collections.abc import Sequence
from copy import copy
from typing import Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import ListedFleet
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import (
    FleetRecord,
    KeptCheckpoint,
    Lease,
    Member,
    Version,
    WriteId,
    require_checkpoint,
)
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.kinds import CHECKPOINTS, FLEET, HOSTS, LEASES, OWNERSHIP
from changefeed.stores.store import WHOLE, BoundedStore, CallLimits, Record, Store

_ATTEMPTS = 10

_Kept = TypeVar("_Kept")


class _Form(Generic[_Kept]):
    """The bodies of one kind. ``without`` are fields that are not in them."""

    def __init__(
        self, kind: str, form: type[_Kept], *, where: str, without: Sequence[str] = ()
    ) -> None:
        self.kind = kind
        self._decoder = msgspec.json.Decoder(form)
        self._where = where
        self._without = without

    def body(self, value: _Kept) -> bytes:
        fields = msgspec.to_builtins(value)
        for name in self._without:
            del fields[name]
        return msgspec.json.encode(fields)

    def value(self, record: Record) -> _Kept:
        """Raise ``StoreRefused`` for what is no such record."""
        try:
            return self._decoder.decode(record.body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.refusal(record.key, str(error)) from error

    def refusal(self, key: str, reason: str) -> StoreRefused:
        where = f"{self._where}: " if self._where else ""
        return StoreRefused(
            f"{where}the record of {self.kind} {key!r} cannot be read ({reason}): it is"
            " damaged, was changed by hand, or is another program's. While no host runs, mend"
            f" it or delete it ({_DELETED[self.kind]}); or give this fleet a place of its own"
        )


_DELETED = {
    LEASES: "its range then begins at feed.start",
    OWNERSHIP: "it is then created again",
    CHECKPOINTS: "then say where its range goes on, with: changefeed reset",
    HOSTS: "its host then writes another",
    FLEET: "the next host then writes another",
}


class _Stored:
    """Records of a fleet over a store, and the record of the fleet itself."""

    _fleet_key = FLEET

    def __init__(self, store: Store, *, where: str = "") -> None:
        self._store = store
        self._fleets = _Form(
            FLEET, FleetRecord, where=where, without=["version", "checkpoints"]
        )

    def bounded(self, bounds: CallLimits) -> Self:
        """Return the same, over a store that is asked within bounds."""
        bound = copy(self)
        bound._store = BoundedStore(self._store, bounds)  # noqa: SLF001 - a copy of ours
        return bound

    async def fleet(self) -> FleetRecord:
        found = await self._store.get(FLEET, self._fleet_key)
        return FleetRecord() if found is None else self._fleet(found)

    async def put_fleet(self, record: FleetRecord) -> FleetRecord | None:
        body, version = self._fleets.body(record), record.version
        written = await self._store.put(
            Record(kind=FLEET, key=self._fleet_key, body=body, version=version)
        )
        return None if written is None else self._fleet(written)

    def _fleet(self, record: Record) -> FleetRecord:
        kept = self._fleets.value(record)
        return replace(kept, checkpoints=kept.id, version=Version(record.version))


class StoredMembers(_Stored):
    """The members of a fleet, and its own record."""

    def __init__(self, store: Store, *, where: str = "") -> None:
        super().__init__(store, where=where)
        self._hosts = _Form(HOSTS, Member, where=where, without=["version"])

    async def members(self) -> Sequence[Member]:
        return self._members((await self._store.list({HOSTS})).records)

    async def put_member(self, member: Member) -> Member | None:
        written = await self._store.put(self._host_record(member))
        return None if written is None else self._member(written)

    async def remove_member(self, member: Member) -> None:
        await self._store.delete(HOSTS, member.name, member.version)

    def _host_record(self, member: Member) -> Record:
        body = self._hosts.body(member)
        return Record(kind=HOSTS, key=member.name, body=body, version=member.version)

    def _members(self, records: Sequence[Record]) -> Sequence[Member]:
        return [self._member(x) for x in records if x.kind == HOSTS]

    def _member(self, record: Record) -> Member:
        return replace(self._hosts.value(record), version=Version(record.version))


class StoredOwnership(StoredMembers):
    """Leases without their positions: who reads each range."""

    renew_each = False

    def __init__(self, store: Store, *, kind: str = OWNERSHIP, where: str = "") -> None:
        super().__init__(store, where=where)
        self._leases = _Form(kind, Lease, where=where, without=["version", "checkpoint"])

    async def list(self) -> Sequence[Lease]:
        listed = await self._store.list({self._leases.kind})
        return [self.decode(x) for x in listed.records]

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        put = None if heartbeat is None else self._host_record(heartbeat)
        listed = await self._store.list({self._leases.kind, HOSTS}, token, put)
        return ListedFleet(
            leases=[self.decode(x) for x in listed.records if x.kind != HOSTS],
            members=self._members(listed.records),
            total=listed.total,
            token=listed.token,
            heartbeat=None if listed.put is None else self._member(listed.put),
        )

    async def read(self, range_id: RangeId) -> Lease | None:
        found = await self._store.get(self._leases.kind, range_id)
        return None if found is None else self.decode(found)

    async def create(self, lease: Lease) -> Lease:
        return await self._created(lease.without_position())

    async def replace(self, lease: Lease) -> Lease:
        return await self._written(lease.without_position())

    async def delete(self, lease: Lease) -> None:
        _, version = _split(lease.version)
        if not await self._store.delete(self._leases.kind, lease.range_id, version):
            raise await self._refusal(lease)

    async def _created(self, lease: Lease) -> Lease:
        record = replace(self._record(lease), version="")
        return self.decode(await _present(self._store, record, f"lease {lease.range_id!r}"))

    async def _written(self, lease: Lease) -> Lease:
        record = self._record(lease)
        # What has no version was never read: to insert it is not what was asked for.
        written = await self._store.put(record) if record.version else None
        if written is None:
            raise await self._refusal(lease)
        # The body is what was sent; a position that was not sent is what was there.
        checkpoint = lease.checkpoint
        if checkpoint is None and written.position is not None:
            checkpoint = Checkpoint.of_text(written.position)
        version = Version(f"{lease.epoch} {written.version}")
        return replace(lease, checkpoint=checkpoint, version=version)

    async def _refusal(self, lease: Lease, reason: str = "") -> LeaseConflict:
        """Say why a write of ``lease`` was refused: by what is stored by now."""
        stored = await self.read(lease.range_id)
        if stored is None:
            return LeaseConflict(lease, None)
        return LeaseConflict(lease, stored.without_position(), reason)

    def _record(self, lease: Lease) -> Record:
        _, version = _split(lease.version)
        return Record(
            kind=self._leases.kind,
            key=lease.range_id,
            body=self._leases.body(lease),
            position=None if lease.checkpoint is None else lease.checkpoint.text,
            version=version,
        )

    def decode(self, record: Record) -> Lease:
        """Return the lease that a record holds. Raise ``StoreRefused`` for none of ours."""
        lease = self._leases.value(record)
        if lease.range_id != record.key:
            raise self._leases.refusal(record.key, f"it is of range {lease.range_id!r}")
        text = record.position
        checkpoint = None if text is None else Checkpoint.of_text(text)
        assert record.version, f"{record.key!r}: what is stored has a version"
        version = Version(f"{lease.epoch} {record.version}")
        return replace(lease, checkpoint=checkpoint, version=version)


class StoredLeases(StoredOwnership):
    """Ownership and checkpoint in one record: a ``LeaseContainer``."""

    def __init__(self, store: Store, *, where: str = "") -> None:
        super().__init__(store, kind=LEASES, where=where)

    async def create(self, lease: Lease) -> Lease:
        require_checkpoint(lease)
        return await self._created(lease)

    async def replace(self, lease: Lease) -> Lease:
        written = await self._written(lease)
        return written if lease.checkpoint is not None else written.without_position()

    async def acquire(self, lease: Lease) -> Lease:
        # One record, one version: a writer that has not read this write cannot checkpoint.
        return await self._written(lease.without_position())

    async def checkpoint(self, lease: Lease) -> Lease:
        require_checkpoint(lease)
        epoch, _ = _split(lease.version)
        if epoch not in (None, lease.epoch):
            reason = f"a checkpoint of epoch {lease.epoch}, but epoch {epoch} has begun"
            raise await self._refusal(lease, reason)
        return await self._written(replace(lease, checkpoint_epoch=lease.epoch))


class _Claim(msgspec.Struct, frozen=True):
    """What is kept beside the position of a checkpoint: the epoch that has claimed it."""

    epoch: int
    write_id: WriteId | None = None


class StoredCheckpoints(_Stored):
    """Checkpoints alone: one for each range, and whose they are. Raises as containers do."""

    _fleet_key = CHECKPOINTS

    def __init__(self, store: Store, *, where: str = "") -> None:
        super().__init__(store, where=where)
        self._claims = _Form(CHECKPOINTS, _Claim, where=where)

    async def read(self, range_id: RangeId) -> KeptCheckpoint | None:
        found = await self._store.get(CHECKPOINTS, range_id)
        return None if found is None else self._checkpoint(found)

    async def create(self, checkpoint: KeptCheckpoint) -> KeptCheckpoint:
        """Store a first checkpoint, or return the one that is there."""
        name = f"the checkpoint of {checkpoint.range_id!r}"
        record = self._record(checkpoint, "")
        return self._checkpoint(await _present(self._store, record, name))

    async def write(self, checkpoint: KeptCheckpoint) -> KeptCheckpoint | None:
        """Write it if its version is unchanged and no later epoch has claimed the range.

        Return the stored copy, with its new version; ``None`` if there is none, or it is not
        the one we read.
        """
        epoch, version = _split(checkpoint.version)
        if not version or (epoch is not None and epoch > checkpoint.epoch):
            return None
        written = await self._store.put(self._record(checkpoint, version))
        return None if written is None else self._checkpoint(written)

    async def delete(self, checkpoint: KeptCheckpoint) -> bool:
        """Forget it, if its version is unchanged, and say whether that is so: one that was
        written since stays.
        """
        _, version = _split(checkpoint.version)
        return await self._store.delete(CHECKPOINTS, checkpoint.range_id, version)

    def _record(self, checkpoint: KeptCheckpoint, version: str) -> Record:
        claim = _Claim(epoch=checkpoint.epoch, write_id=checkpoint.write_id)
        return Record(
            kind=CHECKPOINTS,
            key=checkpoint.range_id,
            body=self._claims.body(claim),
            position=checkpoint.checkpoint.text,
            version=version,
        )

    def _checkpoint(self, record: Record) -> KeptCheckpoint:
        claim = self._claims.value(record)
        if record.position is None:
            raise self._claims.refusal(record.key, "it has no position")
        return KeptCheckpoint(
            range_id=RangeId(record.key),
            checkpoint=Checkpoint.of_text(record.position),
            epoch=claim.epoch,
            write_id=claim.write_id,
            version=Version(f"{claim.epoch} {record.version}"),
        )


async def _present(store: Store, record: Record, name: str) -> Record:
    """Insert a record, or return the one that is there."""
    for _ in range(_ATTEMPTS):
        stored = await store.put(record) or await store.get(record.kind, record.key)
        if stored is not None:
            return stored
    raise StoreUnavailable(f"{name} is created and deleted faster than it can be read")


def _split(version: str) -> tuple[int | None, str]:
    """Take a version apart; what is none from here has no epoch."""
    epoch, _, of_store = version.partition(" ")
    return int(epoch) if epoch.isascii() and epoch.isdecimal() else None, of_store
