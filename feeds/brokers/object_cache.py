"""Objects of rows in memory: immutable, so whatever was read once is right for ever."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable


class ObjectCache:
    """The objects used last, up to so many bytes. Readers of one object wait for one read."""

    def __init__(self, most_bytes: int) -> None:
        self.hits = 0
        self.misses = 0
        self._most = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._reading: dict[str, asyncio.Future[bytes | None]] = {}

    def add(self, key: str, data: bytes) -> None:
        before = self._kept.pop(key, b"")
        self._kept[key] = data
        self._bytes += len(data) - len(before)
        while self._bytes > self._most and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1])
        assert self._bytes <= self._most or len(self._kept) == 1, (
            f"{len(self._kept)} objects of {self._bytes} bytes are kept, of {self._most}"
        )

    def peek(self, key: str) -> bytes | None:
        return self._kept.get(key)

    def drop(self, key: str) -> None:
        self._bytes -= len(self._kept.pop(key, b""))
        assert self._bytes >= 0, f"the cache holds {self._bytes} bytes"

    async def get(self, key: str, read: Callable[[], Awaitable[bytes | None]]) -> bytes | None:
        """Return an object from memory, or as ``read`` finds it; a miss is not kept."""
        if key in self._kept:
            self.hits += 1
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._reading:
            self.misses += 1
            self._reading[key] = asyncio.ensure_future(self._read(key, read))
        return await asyncio.shield(self._reading[key])

    async def _read(
        self, key: str, read: Callable[[], Awaitable[bytes | None]]
    ) -> bytes | None:
        try:
            data = await read()
            if data is not None:
                self.add(key, data)
            return data
        finally:
            del self._reading[key]

    @property
    def bytes(self) -> int:
        return self._bytes
