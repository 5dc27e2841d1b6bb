"""Reading what runs hold: small objects in the cache as wholes, the last row groups decoded."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing
from io import BytesIO
from typing import Final

from changefeed.feeds.brokers.compacted import Packed, Segment
from changefeed.feeds.brokers.compacted_row import Held
from changefeed.feeds.brokers.errors import RowDamaged
from changefeed.feeds.brokers.flush import FlushDamaged, cut_columns
from changefeed.feeds.brokers.object_cache import ObjectCache
from changefeed.feeds.brokers.parquet import segments_module
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.brokers.work import Work
from changefeed.feeds.eventlog.segment_file import SegmentDamaged

_DECODED_BYTES: Final = 64 * 1024 * 1024
_KEPT_BYTES: Final = 1024 * 1024
"""Of a run whose first bytes hold a section, so much is read, and kept for other sections."""


class SegmentReader:
    """Raises ``RowDamaged`` for an object that is missing, or is not what was written."""

    def __init__(self, store: ObjectStore, cache: ObjectCache, work: Work) -> None:
        self._store = store
        self._cache = cache
        self._work = work
        self._bytes = 0
        self._decoded: OrderedDict[tuple[str, int], Sequence[Block]] = OrderedDict()
        self._one = asyncio.Lock()

    async def read(self, held: Held, after: int, max_bytes: int) -> list[Block]:
        """Return records after a sequence, about so many bytes of them."""
        if isinstance(held, Packed):
            return [await self.packed(held)]
        return await self._read(held, after, max_bytes)

    async def packed(self, held: Packed) -> Block:
        """Return a section of a run."""
        end = held.begin + held.section.bytes
        try:
            return _block(held, await self._bytes_of(held.key, held.begin, end))
        except FlushDamaged:
            self._cache.drop(held.key)  # it may be restored
        try:
            return _block(held, await self._bytes_of(held.key, held.begin, end))
        except FlushDamaged as error:
            raise RowDamaged(f"{held.key} is not what was written: {error}") from error

    async def _bytes_of(self, key: str, begin: int, end: int) -> bytes:
        """Return bytes of an object; of its beginning, from what was read of it before."""
        data: bytes | None
        if end <= _KEPT_BYTES:
            data = await self._cache.get(key, lambda: self._store.get(key, 0, _KEPT_BYTES))
            data = data and data[begin:end]
        else:
            data = await self._store.get(key, begin, end)
        if data is None:
            raise RowDamaged(f"{key} is missing")
        return data

    async def _read(self, segment: Segment, after: int, max_bytes: int) -> list[Block]:
        found: list[Block] = []
        size = 0
        for number in range(segment.file.group_of(after + 1), len(segment.groups)):
            for block in await self._group(segment, number):
                if block.last > after and size < max_bytes:
                    found.append(block)
                    size += block.bytes
            if size >= max_bytes:
                break
        return found

    async def sequence_before(self, held: Held, time_us: int, after: int) -> int | None:
        """Return the last sequence before the first record committed at or after a time.

        ``None`` if there is no such record in it after a sequence.
        """
        if isinstance(held, Packed):
            return _before(await self.packed(held), time_us, after)
        return await self._before(held, time_us, after)

    async def _before(self, segment: Segment, time_us: int, after: int) -> int | None:
        for number, group in enumerate(segment.groups):
            if group.latest_us < time_us or group.last <= after:
                continue
            for block in await self._group(segment, number):
                before = _before(block, time_us, after)
                if before is not None:
                    return before
        return None

    async def _group(self, segment: Segment, number: int) -> Sequence[Block]:
        """Return a row group; those asked for last are kept."""
        key = (segment.key, number)
        async with self._one:  # of two readers of one group the second finds it made
            if key not in self._decoded:
                data = await self._object(segment)
                try:
                    blocks = await self._work(lambda: _blocks(data, segment, number))
                except RowDamaged:
                    self._cache.drop(segment.key)  # it may be restored
                    raise
                self._decoded[key] = blocks
                self._bytes += sum(x.bytes for x in blocks)
            self._decoded.move_to_end(key)
            while self._bytes > _DECODED_BYTES and len(self._decoded) > 1:
                self._bytes -= sum(x.bytes for x in self._decoded.popitem(last=False)[1])
            assert self._bytes >= 0, f"row groups of {self._bytes} bytes are kept"
            assert self._bytes <= _DECODED_BYTES or len(self._decoded) == 1, (
                f"{len(self._decoded)} row groups of {self._bytes} bytes are kept"
            )
            return self._decoded[key]

    async def _object(self, segment: Segment) -> bytes:
        data = await self._cache.get(segment.key, lambda: self._store.get(segment.key))
        if data is None:
            raise RowDamaged(f"{segment.key} is missing")
        return data


def _block(held: Packed, data: bytes) -> Block:
    section = held.section
    return Block(first=section.first, count=section.count, columns=cut_columns(data, section))


def _before(block: Block, time_us: int, after: int) -> int | None:
    for place, found in enumerate(memoryview(block.columns.times).cast("q")):
        if found >= time_us and block.first + place > after:
            return block.first + place - 1
    return None


def _blocks(data: bytes, segment: Segment, number: int) -> Sequence[Block]:
    first, last = segment.file.bounds(number)
    found: list[Block] = []
    try:
        with closing(
            segments_module().read_segment(BytesIO(data), segment.file, first)
        ) as slices:
            for x in slices:
                found.append(Block(first=x.first, count=x.count, columns=x.layout))
                if x.first + x.count > last:
                    break
    except SegmentDamaged as error:
        raise _damaged(segment, error) from error
    return found


def _damaged(segment: Segment, error: SegmentDamaged) -> RowDamaged:
    first, last, reason = error.args
    return RowDamaged(f"{segment.key} is damaged at records {first:,} to {last:,}: {reason}")
