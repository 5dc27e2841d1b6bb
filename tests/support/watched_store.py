"""An object store in memory in which something happens ahead of a call."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import Listed, Versioned

Call = Literal["create", "put", "replace", "get", "head", "list", "delete"]


async def _nothing(_call: Call, _key: str) -> None:
    """Let the call be made."""


class WatchedStore(MemoryStore):
    """Awaits ``before`` with the name of each call, and its key or prefix, ahead of it.

    ``before`` may wait, raise what the caller is to get, or change what is stored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[Call, str], Awaitable[None]] = _nothing

    async def create(self, key: str, data: bytes) -> bool:
        await self.before("create", key)
        return await super().create(key, data)

    async def put(self, key: str, data: bytes) -> None:
        await self.before("put", key)
        await super().put(key, data)

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        await self.before("replace", key)
        return await super().replace(key, data, version)

    async def newer(self, key: str, version: str) -> Versioned | None:
        await self.before("get", key)
        return await super().newer(key, version)

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        await self.before("get", key)
        return await super().get(key, start, end)

    async def written_at(self, key: str) -> float | None:
        await self.before("head", key)
        return await super().written_at(key)

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        await self.before("list", prefix)
        return await super().list(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.before("delete", key)
        await super().delete(keys)


class LateStore(MemoryStore):
    """Lists nothing of runs and segments yet."""

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        late = prefix.startswith(("compacted/", "segments/"))
        return () if late else await super().list(prefix, after)
