"""Records as fields of hashes: see ``scripts`` for their form and how they are written."""

from collections.abc import Collection, Sequence
from typing import Any

from changefeed.runtime.errors import StoreRefused
from changefeed.runtime.unique_names import unique_name
from changefeed.stores.redis import scripts
from changefeed.stores.redis.address import RedisAddress
from changefeed.stores.redis.connection import Info, RedisCalls
from changefeed.stores.store import WHOLE, Listed, Record, Store

NEWEST = "newest"
_KEYS_OF_A_KIND = 3


class RedisStore(Store):
    """The records of one fleet. Each call is one script. ``server`` is what that said of
    itself when the store was opened.
    """

    def __init__(self, client: Any, address: RedisAddress, server: Info) -> None:
        self.server = server
        self._client = client
        self._calls = RedisCalls(client, address)
        self._address = address
        self._get = client.register_script(scripts.GET)
        self._put = client.register_script(scripts.PUT)
        self._delete = client.register_script(scripts.DELETE)
        self._list = client.register_script(scripts.LIST)

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        names = sorted(kinds)
        arguments: list[object] = [since]
        if put is not None:
            assert put.kind in kinds, f"{put} would not be listed"
            place = 2 + _KEYS_OF_A_KIND * names.index(put.kind)
            arguments += [place, put.key, put.version, unique_name(), put.body]
        async with self._calls.one():
            newest, total, found, written = await self._list(self._keys(*names), arguments)
        assert len(found) == len(names), f"{len(found)} answers for the kinds {names}"
        return Listed(
            records=[
                self._record(kind, field.decode(), [value])
                for kind, records in zip(names, found, strict=True)
                for field, value in zip(records[::2], records[1::2], strict=True)
            ],
            total=total,
            token=newest.decode(),
            put=None if put is None else self._answered(put.kind, put.key, written),
        )

    async def is_there(self) -> bool:
        """Whether anything was ever written, as far as the server knows."""
        async with self._calls.one():
            return bool(await self._client.exists(self._address.key(NEWEST)))

    async def get(self, kind: str, key: str) -> Record | None:
        async with self._calls.one():
            return self._answered(kind, key, await self._get(self._keys(kind), [key]))

    async def put(self, record: Record) -> Record | None:
        arguments: list[object] = [record.key, record.version, unique_name(), record.body]
        if record.position is not None:
            arguments.append(record.position)
        async with self._calls.one():
            answer = await self._put(self._keys(record.kind), arguments)
        return self._answered(record.kind, record.key, answer)

    async def delete(self, kind: str, key: str, version: str) -> bool:
        async with self._calls.one():
            return bool(await self._delete(self._keys(kind), [key, version]))

    def _keys(self, *kinds: str) -> Sequence[str]:
        names = [f"{x}s{rest}" for x in kinds for rest in ("", ".positions", ".changes")]
        return [self._address.key(x) for x in (NEWEST, *names)]

    def _answered(self, kind: str, key: str, answer: Sequence[bytes | None]) -> Record | None:
        return self._record(kind, key, answer) if answer and answer[0] is not None else None

    def _record(self, kind: str, key: str, answer: Sequence[bytes | None]) -> Record:
        value, position = (*answer, None)[:2]
        assert value is not None, f"{kind} {key!r} was answered without its record"
        try:
            version, body = value.split(b"\n", 1)
            return Record(
                kind=kind,
                key=key,
                body=body,
                position=None if position is None else position.decode(),
                version=version.decode(),
            )
        except ValueError as error:
            raise StoreRefused(
                f"{self._calls.where}: {self._keys(kind)[1]} holds something else than "
                f"records of leases ({error}): give this fleet another name (fleet=)"
            ) from error
