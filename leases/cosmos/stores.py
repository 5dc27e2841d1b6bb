"""Records of our own beside the leases: members, ownership and checkpoints kept apart.

One item for each record, with the record's fields under ``record``. It is written as a
whole, if its etag is unchanged. ``attempt`` is new for every try to write, so that a writer
whose answer was lost, and whose client sent the write again, knows its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Generic
from uuid import uuid4

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.leases.cosmos.document_ids import Names
from changefeed.leases.cosmos.items import (
    Document,
    ItemExists,
    ItemNotFound,
    Items,
    PreconditionFailed,
)
from changefeed.leases.errors import (
    ContainerRefused,
    ContainerUnavailable,
    LeaseConflict,
    LeaseGone,
    MemberConflict,
)
from changefeed.leases.lease import Checkpoint, Lease, Member, Version
from changefeed.leases.stores import CheckpointConflict
from changefeed.leases.tables import Record

_ALL = "SELECT * FROM c WHERE STARTSWITH(c.id, @begin)"


class Records(Generic[Record]):
    """The records of one ``kind``. Raises what ``Items`` raises; versions are etags."""

    def __init__(self, items: Items, names: Names, kind: str, form: type[Record]) -> None:
        self._items = items
        self._names = names
        self._kind = kind
        self._begin_of_id = names.records(kind)
        self._form: type[Record] = form

    async def all(self) -> list[Record]:
        return self.among(await self._items.query(_ALL, begin=self._begin_of_id))

    def among(self, documents: Iterable[Document]) -> list[Record]:
        """Return the records of this kind and this fleet among documents of any."""
        found = (x for x in documents if str(x["id"]).startswith(self._begin_of_id))
        return [self._read(x) for x in found]

    async def get(self, name: str) -> Record | None:
        found = await self._items.read(self._names.record(self._kind, name))
        return None if found is None else self._read(found)

    async def create(self, name: str, record: Record) -> Record:
        """Raise ``Present`` if it is there, unless it is the one written here."""
        document = self._document(name, record)
        try:
            return self._read(await self._items.create(document))
        except ItemExists:
            written = await self._echo(document)
            if written is None:
                raise
            return written

    async def replace(self, name: str, record: Record, etag: str) -> Record:
        """Raise ``Moved`` or ``Missing`` unless ``etag`` is unchanged."""
        document = self._document(name, record)
        try:
            etag = await self._items.replace(document, etag)
        except PreconditionFailed:
            written = await self._echo(document)
            if written is None:
                raise
            return written
        return self._read({**document, "_etag": etag})

    async def delete(self, name: str, etag: str) -> None:
        await self._items.delete(self._names.record(self._kind, name), etag)

    async def _echo(self, document: Document) -> Record | None:
        """Return what is stored if it was written by this very attempt."""
        found = await self._items.read(document["id"])
        if found is None or found.get("attempt") != document["attempt"]:
            return None
        return self._read(found)

    def _document(self, name: str, record: Record) -> Document:
        fields = msgspec.to_builtins(record)
        del fields["version"]
        document = {"id": self._names.record(self._kind, name), "record": fields}
        assert document["id"].startswith(self._begin_of_id), f"{document['id']} is not listed"
        return self._items.keyed({**document, "attempt": uuid4().hex})

    def _read(self, document: Document) -> Record:
        try:
            record = msgspec.convert(document.get("record"), type=self._form)
        except msgspec.ValidationError as error:
            raise ContainerRefused(
                f"{document['id']!r} is no {self._kind} record ({error}): give this fleet "
                "a prefix, or a container, of its own"
            ) from error
        return replace(record, version=Version(document["_etag"]))


class FeedDocument:
    """The document that says which feed the leases of a fleet are about."""

    def __init__(self, items: Items, name: str) -> None:
        self._items = items
        self._name = name

    async def identity(self) -> str | None:
        found = await self._items.read(self._name)
        return None if found is None else str(found["feed"])

    async def keep(self, identity: str) -> None:
        """Write it; of hosts that do so at once, any may win."""
        document = self._items.keyed({"id": self._name, "feed": identity})
        found = await self._items.read(self._name)
        with suppress(ItemExists, ItemNotFound, PreconditionFailed):
            if found is None:
                await self._items.create(document)
            else:
                await self._items.replace(document, found["_etag"])


class CosmosMembers:
    """Keeps the member records of a fleet: a ``Members``."""

    def __init__(self, items: Items, names: Names) -> None:
        self._members = Records(items, names, "host", Member)
        self._of_feed = FeedDocument(items, names.feed)

    async def feed_identity(self) -> str | None:
        return await self._of_feed.identity()

    async def keep_feed_identity(self, identity: str) -> None:
        await self._of_feed.keep(identity)

    async def members(self) -> Sequence[Member]:
        return await self._members.all()

    async def put_member(self, member: Member) -> Member:
        try:
            if member.version:
                return await self._members.replace(member.name, member, member.version)
            return await self._members.create(member.name, member)
        except ItemNotFound as error:
            raise MemberConflict(member, "its member record was removed") from error
        except (PreconditionFailed, ItemExists) as error:
            stored = await self._members.get(member.name)
            by = "removed" if stored is None else f"written by {stored.incarnation!r}"
            raise MemberConflict(member, f"its member record was {by}") from error

    async def remove_member(self, member: Member) -> None:
        try:
            await self._members.delete(member.name, member.version)
        except (PreconditionFailed, ItemNotFound):
            return  # another one, or none


class CosmosOwnership(CosmosMembers):
    """Leases without their continuations: an ``OwnershipStore``. Ours alone: no other
    processor reads these.
    """

    def __init__(self, items: Items, names: Names) -> None:
        super().__init__(items, names)
        self._leases = Records(items, names, "owner", Lease)

    async def list(self) -> Sequence[Lease]:
        return await self._leases.all()

    async def read(self, range_id: RangeId) -> Lease | None:
        return await self._leases.get(range_id)

    async def create(self, lease: Lease) -> Lease:
        try:
            return await self._leases.create(lease.range_id, lease.without_continuation())
        except ItemExists as error:
            stored = await self._leases.get(lease.range_id)
            if stored is None:
                raise ContainerUnavailable(
                    f"lease {lease.range_id!r} was deleted while it was created"
                ) from error
            return stored

    async def replace(self, lease: Lease) -> Lease:
        with _if_unchanged(lease):
            return await self._leases.replace(
                lease.range_id, lease.without_continuation(), lease.version
            )

    async def delete(self, lease: Lease) -> None:
        with _if_unchanged(lease):
            await self._leases.delete(lease.range_id, lease.version)


@contextmanager
def _if_unchanged(lease: Lease) -> Iterator[None]:
    try:
        yield
    except ItemNotFound as error:
        raise LeaseGone(lease, "there is no such lease") from error
    except PreconditionFailed as error:
        raise LeaseConflict(lease, "written since it was read") from error


class CosmosCheckpoints:
    """Checkpoints alone: a ``CheckpointStore``.

    Its versions are etags with the epoch of the checkpoint before them: who knows the
    current etag knows which epoch has claimed it.
    """

    def __init__(self, items: Items, names: Names) -> None:
        self._checkpoints = Records(items, names, "checkpoint", Checkpoint)

    async def read(self, range_id: RangeId) -> Checkpoint | None:
        found = await self._checkpoints.get(range_id)
        return None if found is None else _with_epoch(found)

    async def create(self, checkpoint: Checkpoint) -> Checkpoint:
        name = checkpoint.range_id
        try:
            return _with_epoch(await self._checkpoints.create(name, checkpoint))
        except ItemExists as error:
            stored = await self.read(name)
            if stored is None:
                raise ContainerUnavailable(
                    f"the checkpoint of {name!r} was deleted while it was created"
                ) from error
            return stored

    async def write(self, checkpoint: Checkpoint) -> Checkpoint:
        name = f"the checkpoint of {checkpoint.range_id!r}"
        epoch, _, etag = checkpoint.version.partition(" ")
        if epoch.isdecimal() and int(epoch) > checkpoint.epoch:
            raise CheckpointConflict(f"{name} was claimed for epoch {epoch}")
        try:
            written = await self._checkpoints.replace(checkpoint.range_id, checkpoint, etag)
        except ItemNotFound as error:
            raise CheckpointConflict(f"{name} is not there") from error
        except PreconditionFailed as error:
            raise CheckpointConflict(f"{name} was written since it was read") from error
        return _with_epoch(written)

    async def delete(self, checkpoint: Checkpoint) -> None:
        _, _, etag = checkpoint.version.partition(" ")
        with suppress(ItemNotFound, PreconditionFailed):
            await self._checkpoints.delete(checkpoint.range_id, etag)


def _with_epoch(checkpoint: Checkpoint) -> Checkpoint:
    carried_version = f"{checkpoint.epoch} {checkpoint.version}"
    return replace(checkpoint, version=Version(carried_version))
