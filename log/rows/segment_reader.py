"""Reading what runs hold: small objects in the cache as wholes, the last row groups decoded."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import Layout
from changefeed.log.format.pack import cut_columns
from changefeed.log.format.parquet import segments_module
from changefeed.log.format.runs import RunSection
from changefeed.log.format.segment_file import Segment, SegmentSlice
from changefeed.log.protocol.messages import Block
from changefeed.log.rows.object_cache import Cache, ObjectCache
from changefeed.log.rows.row_runs import RunPart
from changefeed.log.stores.store import ObjectStore

_DECODED_BYTES: Final = 64 * 1024 * 1024
_KEPT_BYTES: Final = 1024 * 1024
"""Of a run whose first bytes hold a section, so much is read, and kept for other sections."""

_Decoded = Mapping[int, Sequence[Block]]
"""The rows of each range in a row group, by how many lie before them."""


class SegmentReader:
    """Raises ``Damaged`` for an object that is missing, or is not what was written."""

    def __init__(self, store: ObjectStore, cache: ObjectCache) -> None:
        self._store = store
        self._cache = cache
        self._decoded = Cache[tuple[str, int], _Decoded](_DECODED_BYTES, _bytes_of)
        self._one = asyncio.Lock()

    async def read(self, held: RunPart, after: int, max_bytes: int) -> list[Block]:
        """Return records after a sequence, about so many bytes of them."""
        assert held.last > after, f"{held.key} ends at {held.last}, before {after}"
        if isinstance(held, RunSection):
            return [await self.packed(held)]
        found: list[Block] = []
        size = 0
        for block in (await self._group(held))[held.skip]:
            if block.last > after and size < max_bytes:
                found.append(block)
                size += block.bytes
        return found

    async def packed(self, held: RunSection) -> Block:
        """Return a section of a run."""
        end = held.begin + held.section.bytes
        data = await self._bytes_of(held.key, held.begin, end)
        section = held.section
        try:
            columns = cut_columns(data, section)
        except Damaged as error:
            self._cache.pop(held.key)  # it may be restored
            raise Damaged(f"{held.key} is not what was written: {error}") from error
        return Block(first=section.first, count=section.count, columns=columns)

    async def _bytes_of(self, key: str, begin: int, end: int) -> bytes:
        """Return bytes of an object; of its beginning, from what was read of it before."""
        if end > _KEPT_BYTES:
            return _there(key, await self._store.get(key, begin, end))
        data = await self._cache.get(key, lambda: self._store.get(key, 0, _KEPT_BYTES))
        return _there(key, data)[begin:end]

    async def sequence_before(self, held: RunPart, time_us: int, after: int) -> int | None:
        """Return the last sequence before the first record committed at or after a time.

        ``None`` if there is no such record in it after a sequence.
        """
        for block in await self.read(held, after, sys.maxsize):
            before = block.sequence_before(time_us, after)
            if before is not None:
                return before
        return None

    async def _group(self, rows: SegmentSlice) -> _Decoded:
        """Return a row group; those asked for last are kept."""
        place = (rows.key, rows.group)
        async with self._one:  # of two readers of one group the second finds it made
            found = self._decoded.use(place)
            if found is None:
                tail, data = await self._tail(rows.segment), await self._data(rows)
                try:
                    found = await asyncio.to_thread(_decoded, rows, tail, data)
                except Damaged as error:
                    self._cache.pop(rows.key)  # it may be restored
                    raise Damaged(f"{rows.key} is damaged: {error}") from error
                self._decoded.add(place, found)
            return found

    async def _tail(self, segment: Segment) -> bytes:
        """Return what lies behind the row groups: all else of a segment is read once."""
        read = partial(self._store.get, segment.key, *segment.tail)
        return _there(segment.key, await self._cache.get(segment.key, read))

    async def _data(self, rows: SegmentSlice) -> bytes:
        bounds = rows.segment.bounds(rows.group)
        return _there(rows.key, await self._store.get(rows.key, *bounds))


def _there(key: str, data: bytes | None) -> bytes:
    if data is None:
        raise Damaged(f"{key} is missing")
    return data


def _decoded(rows: SegmentSlice, tail: bytes, data: bytes) -> _Decoded:
    segments = segments_module()
    group = rows.segment.groups[rows.group]
    assert rows.slice in group.slices, f"{rows.slice} is not in row group {rows.group}"
    batches = [*segments.read_group(rows.segment, tail, rows.group, data)]
    skips = accumulate((x.count for x in group.slices), initial=0)
    return {
        skip: [*_blocks(x.first, segments.layouts(batches, skip, x.count))]
        for skip, x in zip(skips, group.slices, strict=False)
    }


def _blocks(first: int, layouts: Iterator[Layout]) -> Iterator[Block]:
    for columns in layouts:
        count = len(columns.kinds)
        yield Block(first=first, count=count, columns=columns)
        first += count


def _bytes_of(group: _Decoded) -> int:
    return sum(y.bytes for x in group.values() for y in x)
