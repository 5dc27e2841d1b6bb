"""Records as fields of a hash: see ``scripts`` for their form and how they are written."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic
from uuid import uuid4

import msgspec

from changefeed.leases.errors import ContainerRefused
from changefeed.leases.lease import Checkpoint, Lease, Member, Version, WriteId
from changefeed.leases.listing import ListedFleet
from changefeed.leases.redis import scripts
from changefeed.leases.redis.address import RedisAddress
from changefeed.leases.redis.connection import Calls
from changefeed.leases.tables import Record, TableChanges, listed_changes

_PARTS = 4
_KEYS_OF_FLEET = 5


class _Progress(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint changes of a lease beside its continuation."""

    checkpoint_epoch: int = 0
    write_id: WriteId | None = None


class RedisTable(Generic[Record]):
    """The records of one kind and fleet: a ``ConditionalTable``. Each write is one call."""

    def __init__(
        self, client: Any, calls: Calls, address: RedisAddress, kind: str, form: type[Record]
    ) -> None:
        self._client = client
        self._calls = calls
        self._form: type[Record] = form
        names = [kind, f"{kind}.continuations"]
        if form is Lease:
            names += [f"{kind}.changes", f"{kind}.newest"]
        self.keys = [address.key(x) for x in names]
        self._get = client.register_script(scripts.GET)
        self._insert = client.register_script(scripts.INSERT)
        self._update = client.register_script(scripts.UPDATE)
        self._advance = client.register_script(scripts.ADVANCE)
        self._delete = client.register_script(scripts.DELETE)
        self._changes = client.register_script(scripts.CHANGES)

    async def all(self) -> Sequence[Record]:
        async with self._calls.one():
            values = await self._client.hvals(self.keys[0])
        return [self.read(x) for x in values]

    async def changes_since(self, token: str) -> TableChanges[Record] | None:
        """Ask for the records that were written after the moment that ``token`` is."""
        if self._form is not Lease:
            return None
        async with self._calls.one():
            newest, total, values = await self._changes(self.keys, [token])
        return self.changed(newest, total, values)

    def changed(
        self, newest: bytes, total: int, values: Sequence[bytes]
    ) -> TableChanges[Record]:
        """Read what ``scripts.CHANGES`` answered."""
        found = [self.read(x) for x in values]
        return TableChanges(records=found, total=total, token=newest.decode())

    async def get(self, key: str) -> Record | None:
        return await self._called(self._get, key)

    async def insert(self, key: str, record: Record) -> Record | None:
        return await self._write(self._insert, key, record)

    async def update(self, key: str, record: Record) -> Record | None:
        return await self._write(self._update, key, record)

    async def advance(self, key: str, lease: Lease) -> Record | None:
        progress = msgspec.json.encode(_Progress(lease.epoch, lease.write_id))
        assert lease.continuation is not None, f"lease {key!r}: a checkpoint of nothing"
        arguments = (uuid4().hex, lease.version, lease.epoch, progress, lease.continuation)
        return await self._called(self._advance, key, *arguments)

    async def delete(self, key: str, version: Version) -> bool:
        async with self._calls.one():
            return bool(await self._delete(self.keys, [key, version]))

    async def _write(self, script: Any, key: str, record: Record) -> Record | None:
        version = uuid4().hex
        value, continuation = _value(record, version)
        carried = () if continuation is None else (continuation,)
        return await self._called(script, key, version, record.version, value, *carried)

    async def _called(self, script: Any, *arguments: object) -> Record | None:
        assert None not in arguments, f"a script takes no {arguments}"
        async with self._calls.one():
            answer: Sequence[bytes | None] = await script(self.keys, arguments)
        value, continuation = (*answer, None, None)[:2]
        return None if value is None else self.read(value, continuation)

    def read(self, value: bytes, continuation: bytes | None = None) -> Record:
        """Read a record as it is stored."""
        try:
            version, _, progress, record = value.split(b"\n", _PARTS - 1)
            fields: dict[str, Any] = msgspec.json.decode(record)
            if self._form is Lease:
                done = msgspec.json.decode(progress, type=_Progress)
                fields |= {"checkpoint_epoch": done.checkpoint_epoch, "write_id": done.write_id}
            if continuation is not None:
                fields["continuation"] = continuation.decode()
            found = msgspec.convert(fields, type=self._form)
        except (ValueError, TypeError) as error:
            raise ContainerRefused(
                f"{self._calls.where}: {self.keys[0]} holds what is no record of leases "
                f"({error}): give this fleet another name (fleet=)"
            ) from error
        return replace(found, version=Version(version.decode()))


class RedisFleet:
    """The leases and the members of a fleet, by one script: a ``FleetTable``."""

    def __init__(
        self, client: Any, calls: Calls, leases: RedisTable[Lease], members: RedisTable[Member]
    ) -> None:
        self._calls = calls
        self._leases = leases
        self._members = members
        self._keys = [*leases.keys, members.keys[0]]
        assert len(self._keys) == _KEYS_OF_FLEET, (
            f"the script knows each by its place: {self._keys}"
        )
        self._fleet = client.register_script(scripts.FLEET)

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet:
        arguments = [token]
        if heartbeat is not None:
            version = uuid4().hex
            value, _ = _value(heartbeat, version)
            arguments += [heartbeat.name, version, heartbeat.version, value.decode()]
        async with self._calls.one():
            changed, members, written = await self._fleet(self._keys, arguments)
        return ListedFleet(
            changes=listed_changes(self._leases.changed(*changed)),
            members=[self._members.read(x) for x in members],
            heartbeat=None if written is None else self._members.read(written),
        )


class RedisFeedText:
    """A key of its own: a ``FeedText``."""

    def __init__(self, client: Any, calls: Calls, address: RedisAddress) -> None:
        self._client = client
        self._calls = calls
        self._key = address.key("feed")

    async def get(self) -> str | None:
        async with self._calls.one():
            found: bytes | None = await self._client.get(self._key)
        return None if found is None else found.decode()

    async def put(self, identity: str) -> None:
        async with self._calls.one():
            await self._client.set(self._key, identity)


def _value(record: Lease | Checkpoint | Member, version: str) -> tuple[bytes, str | None]:
    """Return a record as it is stored, and the continuation that is stored beside it."""
    fields = msgspec.to_builtins(record)
    del fields["version"]
    epoch, progress, continuation = "", b"", None
    if isinstance(record, Lease):
        epoch = str(record.epoch)
        progress = msgspec.json.encode(_Progress(record.checkpoint_epoch, record.write_id))
        for name in ("continuation", "checkpoint_epoch", "write_id"):
            del fields[name]
        continuation = record.continuation
    head = (version.encode(), epoch.encode(), progress)
    value = b"\n".join((*head, msgspec.json.encode(fields)))
    assert value.count(b"\n") == _PARTS - 1, f"scripts take it apart by its lines: {value!r}"
    return value, continuation
