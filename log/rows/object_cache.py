"""Objects of rows in memory: immutable, so whatever was read once is right for ever.

What is kept is counted in bytes, headers too: a header of a thousand ranges takes as much as
many objects, and a number of headers would be no limit.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from changefeed.log.format.flush import Ends, FlushHeader
from changefeed.log.rows.windows import Window

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
HEADER_BYTES: Final = 64 * 1024 * 1024
"""Twenty headers of thousands of ranges: more than engines read ahead."""
_ENDS_BYTES: Final = 32 * 1024 * 1024
_AS_OBJECTS: Final = 8
"""A header takes so many times its bytes as values of Python."""
_END_BYTES: Final = 500


class Cache(Generic[K, V]):
    """The values used last, up to so many bytes; the last one always.

    ``size_of`` says how many a value takes. Readers of one value wait for one read.
    """

    def __init__(self, most_bytes: int, size_of: Callable[[V], int]) -> None:
        self.hits = 0
        self.misses = 0
        self._most = most_bytes
        self.bytes = 0
        self._size_of = size_of
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._reading: dict[K, asyncio.Future[V | None]] = {}

    def add(self, key: K, value: V) -> None:
        self.pop(key)
        self._kept[key] = value
        self.bytes += self._size_of(value)
        while self.bytes > self._most and len(self._kept) > 1:
            self.bytes -= self._size_of(self._kept.popitem(last=False)[1])
        assert self.bytes <= self._most or len(self._kept) == 1, (
            f"{len(self._kept)} objects of {self.bytes} bytes are kept, of {self._most}"
        )

    def peek(self, key: K) -> V | None:
        """Return what is kept; that it was used does not count."""
        return self._kept.get(key)

    def use(self, key: K) -> V | None:
        """Return what is kept, and keep it the longer for that."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def pop(self, key: K) -> V | None:
        """Return what was kept, and keep it no longer."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.bytes -= self._size_of(found)
        assert self.bytes >= 0, f"the cache holds {self.bytes} bytes"
        return found

    async def get(self, key: K, read: Callable[[], Awaitable[V | None]]) -> V | None:
        """Return a value from memory, or as ``read`` finds it; a miss is not kept."""
        if key in self._kept:
            self.hits += 1
            return self.use(key)
        if key not in self._reading:
            self.misses += 1
            self._reading[key] = asyncio.ensure_future(self._read(key, read))
        return await asyncio.shield(self._reading[key])

    async def _read(self, key: K, read: Callable[[], Awaitable[V | None]]) -> V | None:
        try:
            value = await read()
            if value is not None:
                self.add(key, value)
            return value
        finally:
            del self._reading[key]


class CachedHeader(NamedTuple):
    """What the header of an object says, and how many bytes of the object it takes."""

    header: FlushHeader
    size: int


class ObjectCache(Cache[str, bytes]):
    """Large objects by their keys, and ``windows`` of others by era, broker and first number.

    ``headers``, and ``ends`` of rows, have room of their own.
    """

    def __init__(self, most_bytes: int, header_bytes: int = HEADER_BYTES) -> None:
        super().__init__(most_bytes // 2, len)
        self.windows = Cache[tuple[int, str, int], Window](most_bytes // 2, lambda x: x.size)
        self.headers = Cache[str, CachedHeader](header_bytes, lambda x: _AS_OBJECTS * x.size)
        self.ends = Cache[str, Ends](_ENDS_BYTES, lambda x: _END_BYTES * len(x))
