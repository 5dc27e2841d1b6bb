"""An object store in memory, for tests and for trying things out."""

import asyncio
from collections.abc import Sequence

from changefeed.log.stores.store import MISSING, Listed, Versioned, version_of


class MemoryStore:
    """See ``ObjectStore``. Shared by the brokers of one process; gone with it."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.times: dict[str, float] = {}

    async def create(self, key: str, data: bytes) -> bool:
        if key in self.objects:
            return False
        self._write(key, data)
        return True

    async def put(self, key: str, data: bytes) -> None:
        self._write(key, data)

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        if self._version(key) != version:
            return None
        self._write(key, data)
        return version_of(data)

    async def newer(self, key: str, version: str) -> Versioned | None:
        now = self._version(key)
        return None if now == version else Versioned(self.objects.get(key, b""), now)

    def _version(self, key: str) -> str:
        return version_of(self.objects[key]) if key in self.objects else MISSING

    def _write(self, key: str, data: bytes) -> None:
        self.objects[key] = bytes(data)
        self.times[key] = asyncio.get_running_loop().time()

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        assert end is None or 0 <= start <= end, f"{key}: bytes {start} to {end}"
        data = self.objects.get(key)
        return data if data is None or (start == 0 and end is None) else data[start:end]

    async def written_at(self, key: str) -> float | None:
        return self.times.get(key) if key in self.objects else None

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        found = sorted(x for x in self.objects if x.startswith(prefix) and x > after)
        return [Listed(x, len(self.objects[x])) for x in found]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)
