"""The objects of a row ``wal/<era>/<broker>/<n>``: their headers, windows of them, columns.

What was read once is right for ever, and is kept while there is room (``object_cache``).
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from changefeed.log.catalog.names import flush_key, flush_keys
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import Layout
from changefeed.log.format.flush import FlushHeader, decode_header
from changefeed.log.format.pack import Place, Section, cut_columns, header_bytes
from changefeed.log.rows.object_cache import CachedHeader, ObjectCache
from changefeed.log.rows.row_runs import HEAD_BYTES
from changefeed.log.rows.windows import RecordSpan, Window, is_small
from changefeed.log.stores.local_store import ByteRange, get_many
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.gather import gather_or_cancel


class RowObjects:
    """``ahead``: how many objects a window has at the most.

    ``whole``: of an object that is large all is read, and kept for the other partitions.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster: str,
        era: int,
        broker: str,
        cache: ObjectCache,
        *,
        ahead: int,
        whole: bool,
    ) -> None:
        assert ahead > 0, "a window has an object at least"
        self.era = era
        self.broker = broker
        self._store = store
        self._cluster = cluster
        self._cache = cache
        self._ahead = ahead
        self._whole = whole
        self._extending = asyncio.Lock()

    def key(self, number: int) -> str:
        return flush_key(self.era, self.broker, number)

    def take_in(self, number: int, data: bytes) -> FlushHeader:
        """Take in an object as its writer knows it."""
        key, place = self.key(number), self._window_of(number)
        header = decode_header(data, self._cluster, Place(self.era, self.broker, number))
        kept = CachedHeader(header, header_bytes(data))
        self._cache.headers.add(key, kept)
        window = self._cache.windows.use(place)
        if window is None and number == place[2]:
            window = Window(number - 1)
        if window is not None and window.last == number - 1:  # else it is read when wanted
            self._cache.windows.pop(place)
            window.add(header, kept.size, data)
            if number == place[2] + self._ahead - 1:
                window.coalesce(place[2] - 1)
            self._cache.windows.add(place, window)
        if not (is_small(data) and window is not None and window.last == number):
            self._cache.add(key, data)
        return header

    async def header(self, number: int) -> FlushHeader | None:
        """Return what an object holds; ``None`` if there is none. Raise ``Damaged``."""
        key = self.key(number)
        found = self._cache.headers.use(key)
        if found is None:
            data = self._cache.peek(key)
            if data is None:
                data = await self._store.get(key, 0, HEAD_BYTES)
            if data is None:
                return None
            found = await self._read_header(number, data)
        return found.header

    async def there(self, number: int) -> FlushHeader:
        """Return what an object holds that should be there. Raise ``Damaged``."""
        found = await self.header(number)
        if found is None:
            raise Damaged(f"{self.key(number)} is missing")
        return found

    async def is_there(self, number: int) -> bool:
        """Whether there is an object, damaged or not."""
        try:
            return await self.header(number) is not None
        except Damaged:
            return True

    async def _read_header(self, number: int, data: bytes) -> CachedHeader:
        """Read the header of an object from its beginning."""
        key = self.key(number)
        try:
            if header_bytes(data) > len(data):
                data = await self._store.get(key, 0, header_bytes(data)) or b""
            header = decode_header(data, self._cluster, Place(self.era, self.broker, number))
        except Damaged as error:
            self._cache.pop(key)  # it may be restored
            raise Damaged(f"{key} is not what was written: {error}") from error
        found = CachedHeader(header, header_bytes(data))
        self._cache.headers.add(key, found)
        return found

    # windows

    def _window_of(self, number: int) -> tuple[int, str, int]:
        assert number > 0, f"objects count from 1: there is no {number}"
        first = (number - 1) // self._ahead * self._ahead + 1
        return (self.era, self.broker, first)

    async def window(
        self, number: int, known: int, kept_from: int, *, newest: bool = False
    ) -> Window:
        """Return the window with an object, up to ``known``.

        Those before ``kept_from`` are deleted. ``newest``: with all that is there by now.
        """
        place = self._window_of(number)
        end = place[2] + self._ahead - 1
        until = end if newest else min(end, known)
        window = self._cache.windows.use(place)
        if window is not None and window.last >= until:
            self._cache.hits += 1
            return window
        async with self._extending:
            window = self._cache.windows.use(place)
            if window is None:
                window = Window(place[2] - 1)
            window.last = max(window.last, kept_from - 1)
            has_ended = (window.sealed_at or 0) >= kept_from  # what lies behind is nothing
            if window.last < until and not has_ended:
                self._cache.windows.pop(place)
                await self._extend(window, until)
                if not window.damaged:  # else it may be restored
                    self._cache.windows.add(place, window)
        return window

    async def _extend(self, window: Window, until: int) -> None:
        """Take in the objects that follow, up to one that is missing."""
        numbers = range(window.last + 1, until + 1)
        keys = flush_keys(self.era, self.broker, numbers)
        heads = await get_many(self._store, [ByteRange(x, 0, HEAD_BYTES) for x in keys])
        for number, data in zip(numbers, heads, strict=True):
            if data is None:
                break
            self._cache.misses += 1
            try:
                header, size = await self._decoded(number, data)
            except Damaged:
                window.pass_over(number)
                continue
            window.add(header, size, data)
            if header.seal:
                break
        if not window.damaged:
            window.coalesce(numbers.start - 1)

    async def _decoded(self, number: int, data: bytes) -> CachedHeader:
        with suppress(Damaged):
            size = header_bytes(data)
            if size <= len(data):
                place = Place(self.era, self.broker, number)
                return CachedHeader(decode_header(data, self._cluster, place), size)
        return await self._read_header(number, data)

    # columns

    async def columns_at(self, found: Sequence[RecordSpan]) -> list[Layout]:
        """Return the columns of spans. Raise ``Damaged``."""
        stored = [(x, x.section) for x in found if x.section is not None]
        read = iter(await self._layouts(stored) if stored else ())
        layouts = [next(read) if x.columns is None else x.columns for x in found]
        assert next(read, None) is None, f"of {len(found)} spans more sections were read"
        return layouts

    async def _layouts(self, sections: Sequence[tuple[RecordSpan, Section]]) -> list[Layout]:
        """Read the columns of sections from their objects, all at once."""
        extents = []
        for x, section in sections:
            begin = x.head + section.offset
            extents.append(ByteRange(self.key(x.number), begin, begin + section.bytes))
        read = await self._slices(extents)
        layouts = []
        for (x, section), data in zip(sections, read, strict=True):
            try:
                layouts.append(cut_columns(data or b"", section))
            except Damaged as error:
                key = self.key(x.number)
                self._cache.pop(key)  # it may be restored
                raise Damaged(f"{key} is not what was written: {error}") from error
        return layouts

    async def _slices(self, extents: Sequence[ByteRange]) -> Sequence[bytes | None]:
        if not self._whole:
            return await get_many(self._store, extents)
        objects = await gather_or_cancel(
            *(self._cache.get(x.key, partial(self._store.get, x.key)) for x in extents)
        )
        pairs = zip(extents, objects, strict=True)
        return [None if y is None else y[x.start : x.end] for x, y in pairs]
