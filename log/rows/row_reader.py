"""Reading a row ``wal/<era>/<broker>/<n>``, by brokers, by hosts and by engines.

A row is what can be read from 1 on without a gap, up to its first seal. What lies behind a
gap or a seal was never acknowledged. What can be read is there for good: a seal
takes the first number that is free.

Many objects are looked at in one step, as a *window*: all partitions of the row are read
through the same. Where a sequence lies is found by halving among the tables, and by going over
windows from there. A read goes over some windows and no further, so that partitions that are
read in turns find them in memory. What was read once is right for ever (``object_cache``).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import pairwise
from typing import Final

from changefeed.log.catalog.catalog import Row
from changefeed.log.catalog.names import flush_key, flush_keys
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import Layout, joined
from changefeed.log.format.flush import (
    MAX_IN_FLIGHT,
    TABLE_EVERY,
    Ends,
    FlushHeader,
    PartitionEnd,
    ProducerKey,
    ProducerState,
    decode_header,
    ends_after,
    producers_after,
    producers_by_key,
    table_before,
)
from changefeed.log.format.pack import (
    HEAD_BYTES,
    Key,
    Place,
    Records,
    Section,
    cut_columns,
    header_bytes,
)
from changefeed.log.protocol.messages import Block
from changefeed.log.rows.object_cache import Cache, CachedHeader, ObjectCache
from changefeed.log.rows.row_runs import RowRuns, RunIndex
from changefeed.log.rows.windows import RecordSpan, Window, is_small
from changefeed.log.stores.local_store import ByteRange, get_many
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.calls import gather_or_cancel

_LEAST_LEAP: Final = 16
_WINDOWS: Final = 16
"""A read that has found something goes over so many windows."""
_PLACES: Final = 8192
ALL: Final = 2**63
"""No partition has so many records."""


class RowReader:
    """One row. ``known``: objects up to there can be read; ``sealed_at``: its end, if known.

    Those below ``kept_from`` are deleted; what ``runs`` knows of is compacted. ``ahead``: how
    many objects a window has at the most. ``whole``: of an object that is large all is read,
    and kept for the other partitions.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster: str,
        era: int,
        broker: str,
        cache: ObjectCache,
        *,
        ahead: int = TABLE_EVERY,
        whole: bool = False,
    ) -> None:
        assert ahead > 0, "a window has an object at least"
        self.era = era
        self.broker = broker
        self.known = 0
        self.sealed_at: int | None = None
        self.runs = RowRuns(store, cluster, era, broker)
        self._store = store
        self._cluster = cluster
        self._cache = cache
        self._ahead = ahead
        self._whole = whole
        self._extending = asyncio.Lock()
        self._leapt = False
        self._damaged = 0
        self._looking = asyncio.Lock()
        self._ends: dict[Key, PartitionEnd] = {}
        self._ends_at = 0
        self._places = Cache[tuple[Key, int], int](_PLACES, lambda _: 1)

    # what the row has

    @property
    def kept_from(self) -> int:
        return self.runs.kept_from

    @property
    def is_new(self) -> bool:
        """Whether it was never read, or nothing is known of what is kept of it."""
        if self.kept_from == 1:
            return self.known == 0 and not self._leapt
        return self.known < self.kept_from

    def add(self, number: int, data: bytes) -> None:
        """Take in the next object, as its writer knows it."""
        self._learn(self._take_in(number, data))

    def learn(self, row: Row) -> None:
        """Learn from the catalog where the row ends, and where what is kept begins."""
        assert row.broker == self.broker, f"{self.broker} learns of the row of {row.broker}"
        self.runs.kept_from = max(self.kept_from, row.kept_from)
        self.known = max(self.known, self.kept_from - 1)
        sealed_at = row.sealed_at
        if self.sealed_at is not None and self.sealed_at < self.kept_from:
            self.sealed_at = None  # made where an object had been deleted: it ends nothing
        if self.sealed_at is None and sealed_at is not None:
            self.sealed_at = sealed_at
            self.known = max(self.known, sealed_at)

    async def tail(self, hint: int = 0) -> int:
        """Look for more objects; return ``known``.

        ``hint`` is a number that is known to have been acknowledged. Raise ``Damaged`` where
        the next object is not what was written, and may be a seal, behind which nothing
        counts. One that lies so far before another that it was acknowledged is none: what
        follows on it is read.
        """
        if self.sealed_at is not None:
            return self.known
        self.known = max(self.known, hint)
        if not self._leapt:
            self._leapt = True
            leapt = await self._leap()
            self.known = max(self.known, leapt)
        while self.sealed_at is None:
            number = self.known + 1
            try:
                header = await self.header(number)
            except Damaged:
                self._damaged = number
                if not await self.is_there(number + MAX_IN_FLIGHT):
                    raise
                self.known = max(self.known, number)
                continue
            if header is None:
                break
            window = await self._window(number, newest=True)
            if window.sound > self.known:
                self.known = window.sound
                self.sealed_at = window.sealed_at if window.sealed_at == window.sound else None
            else:  # it lies behind one that is damaged
                self._learn(header)
        return self.known

    async def _leap(self) -> int:
        """Return a number up to which all are there, found in steps that double.

        An object that exists was sent when all but a few before it were acknowledged.
        """
        sure, step, growing = self.known, _LEAST_LEAP, True
        while step >= _LEAST_LEAP:
            if await self.is_there(sure + step + MAX_IN_FLIGHT):
                sure += step
                step = 2 * step if growing else step // 2
            else:
                step, growing = step // 2, False
        return sure

    def _learn(self, header: FlushHeader) -> None:
        if header.number != self.known + 1:
            return  # known already, from the store
        self.known = header.number
        if header.seal:
            self.sealed_at = header.number

    # ends

    async def check_end(self) -> None:
        """Raise ``Damaged`` where more may lie behind what is known: ``tail`` stopped there."""
        if self._damaged > self.known:
            await self.there(self._damaged)

    async def ends(self) -> Ends:
        """Return the ends of its partitions after all that is known; from a few reads.

        Those of a row that is sealed are remembered for all readers, those of one that grows
        go on with it.
        """
        if self.known == self.sealed_at:
            return await self._cache.ends.get(self.key(self.known), self._read_ends) or {}
        async with self._looking:  # of many that ask, one looks
            if self._ends_at < max(1, self.kept_from - 1, self.known - TABLE_EVERY):
                await self._take_ends()
            while self._ends_at < self.known:
                window = await self._window(self._ends_at + 1)
                if window.damaged or window.last <= self._ends_at:  # or deleted meanwhile
                    await self._take_ends()
                    break
                self._ends |= {key: spans[-1].end for key, spans in window.spans.items()}
                self._ends_at = window.last
        return self._ends

    async def _take_ends(self) -> None:
        known = self.known  # others may learn of more meanwhile
        self._ends, self._ends_at = {**await self._read_ends()}, known

    async def _read_ends(self) -> Ends:
        end = await self._end()
        return end.ends if isinstance(end, RunIndex) else ends_after(end)

    async def producers(self) -> Mapping[ProducerKey, ProducerState]:
        """Return how far producers have come after all that is known; as ``ends``."""
        end = await self._end()
        if isinstance(end, RunIndex):
            return producers_by_key(end.run.producers)
        return producers_after(end)

    async def _end(self) -> RunIndex | Sequence[FlushHeader]:
        """Return what says how all ends: the final run, or the last table and what follows."""
        last = self.known
        if last == self.sealed_at:
            seal = await self.there(last)
            if seal.table is not None:
                return [seal]
            last -= 1
        if last < 1:
            return []
        numbers = range(table_before(last), last + 1)
        if numbers.start < self.kept_from:
            final = await self.runs.final_run()
            if final is not None:
                return final
        try:
            return [await self.there(x) for x in numbers]
        except Damaged:  # a catalog that this row has not learned of may say it is deleted
            final = await self.runs.final_run(again=True)
            if final is None:
                raise
            return final

    async def last_table(self, holds: Callable[[FlushHeader], bool]) -> FlushHeader | None:
        """Return the last object with a table of which something holds, if there is one.

        What holds of one holds of those before it.
        """
        low, high = self._tables()
        found = None
        while low <= high:
            middle = (low + high) // 2
            header = await self.there(middle * TABLE_EVERY + 1)
            if holds(header):
                found, low = header, middle + 1
            else:
                high = middle - 1
        return found

    def _tables(self) -> tuple[int, int]:
        """Return the numbers of the first and the last table, counted from 0.

        A seal is none of them, also where it has the number of one: a master's has no table.
        """
        first = -(-(self.kept_from - 1) // TABLE_EVERY)
        last = self.known - (self.known == self.sealed_at)
        return first, (last - 1) // TABLE_EVERY

    # records

    async def read(self, key: Key, after: int, max_bytes: int, end: int = ALL) -> list[Block]:
        """Return records of a partition after a sequence, and up to ``end``.

        About so many bytes of them. Raise ``Damaged`` where what should be there is not.
        """
        found = await self._find(key, after, end, max_bytes)
        try:
            return await self._blocks_at(found)
        except Damaged:  # what lies before it comes first
            return await self._blocks_at(found[:1])

    async def _find(self, key: Key, after: int, end: int, max_bytes: int) -> list[RecordSpan]:
        """Return where records with ``after < sequence <= end`` lie.

        About so many bytes of them, and from few objects. Raise ``Damaged`` where the
        first of them should be and is not.
        """
        found: list[RecordSpan] = []
        number, size, windows = await self._place(key, after), 0, 0
        damaged: int | None = None
        while number <= self.known and (windows < _WINDOWS or not found):
            window = await self._window(number)
            windows += 1
            for span in window.spans_after(key, after):
                if span.first > after + 1:
                    if found:
                        return found
                    lost = f"records {after + 1} to {span.first - 1}"
                    raise Damaged(f"{lost} are missing before object {damaged or window.last}")
                damaged = None  # it has none of this partition
                is_twice = bool(found) and span.first <= after  # read and joined anew
                if after >= end or size >= max_bytes or is_twice:
                    self._places.add((key, after), span.number)
                    return found
                found.append(span)
                after, size = span.last, size + span.bytes
            if window.last < min(number, self.known):
                break
            damaged = damaged or window.damaged_behind(key, number)
            number = window.last + 1
        await self._check_there(found, damaged or number)
        if damaged is None:  # else a later table may say that it had none
            self._places.add((key, after), number)
        return found

    async def _check_there(self, found: Sequence[RecordSpan], number: int) -> None:
        """Raise ``Damaged`` if nothing was found, and what follows is damaged or missing."""
        if not found and number <= self.known:
            await self.there(number)
            raise Damaged(f"{self.key(number)} is missing")
        if not found and number == self._damaged:
            await self.header(number)

    async def _place(self, key: Key, after: int) -> int:
        """Return the number from which to look for what follows on a sequence."""
        known = self._places.use((key, after))
        if known is not None:
            return max(known, self.kept_from)

        def is_before(header: FlushHeader) -> bool:
            end = ends_after([header]).get(key)
            return end is None or end.last <= after

        return await self._from_table(is_before)

    async def _blocks_at(self, found: Sequence[RecordSpan]) -> list[Block]:
        """Read the records of sections that follow each other, as one block.

        Raise ``Damaged``.
        """
        if not found:
            return []
        assert all(x.last + 1 == y.first for x, y in pairwise(found)), "spans leave a gap"
        layouts = await self._columns_at(found)
        first, last = found[0].first, found[-1].last
        return [Block(first=first, count=last - first + 1, columns=joined(layouts))]

    async def records_in(
        self, numbers: range, keys: AbstractSet[Key]
    ) -> AsyncIterator[Sequence[Records]]:
        """Yield what objects have of some partitions, in order, a window at a time.

        The first of them has a table, and the last lies before one, or what comes after it
        has no records. Raise ``Damaged``.
        """
        assert TABLE_EVERY % self._ahead == 0, f"windows of {self._ahead} have tables within"
        number = numbers.start
        while number < numbers.stop:
            window = await self._window(number)
            await self._require(window, number)
            spans = [x for key in keys for x in window.spans.get(key, ())]
            assert all(x.number in numbers for x in spans), f"{numbers} cuts a window"
            layouts = await self._columns_at(spans)
            yield [x.records(y) for x, y in zip(spans, layouts, strict=True)]
            number = window.last + 1

    async def _require(self, window: Window, number: int) -> None:
        """Raise ``Damaged`` unless a window has an object, and none that is damaged."""
        wrong = [x for x in window.damaged if x >= number]
        if wrong or window.last < number:
            number = min([*wrong, max(number, window.last + 1)])
            await self.there(number)
            raise Damaged(f"{self.key(number)} is missing")

    async def sequence_before(self, key: Key, time_us: int, after: int) -> int | None:
        """Return the last sequence before the first record committed at or after a time.

        Only of what lies after a sequence: what retention took may have had later times. Raise
        ``Damaged``.
        """

        def is_before(table: FlushHeader) -> bool:
            end = ends_after([table]).get(key)
            return end is None or end.last == 0 or end.latest_us < time_us

        number = await self._from_table(is_before)
        while number <= self.known:
            window = await self._window(number)
            await self._require(window, number)
            for span in window.spans_after(key, after):
                if span.end.latest_us >= time_us:
                    for block in await self._blocks_at([span]):
                        before = block.sequence_before(time_us, after)
                        if before is not None:
                            return before
            number = window.last + 1
        return None

    async def _from_table(self, holds: Callable[[FlushHeader], bool]) -> int:
        """Return the number of ``last_table``, or of the first table if it holds of none."""
        table = await self.last_table(holds)
        first, _ = self._tables()
        number = first * TABLE_EVERY + 1 if table is None else table.number
        return max(number, self.kept_from)

    # objects, as they are in the store and in memory

    def key(self, number: int) -> str:
        return flush_key(self.era, self.broker, number)

    def _take_in(self, number: int, data: bytes) -> FlushHeader:
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
            self._cache.headers.add(key, found)
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
        return CachedHeader(header, header_bytes(data))

    # windows

    def _window_of(self, number: int) -> tuple[int, str, int]:
        assert number > 0, f"objects count from 1: there is no {number}"
        first = (number - 1) // self._ahead * self._ahead + 1
        return (self.era, self.broker, first)

    async def _window(self, number: int, *, newest: bool = False) -> Window:
        """Return the window with an object, up to ``known``.

        ``newest``: with all that is there by now.
        """
        place = self._window_of(number)
        end = place[2] + self._ahead - 1
        until = end if newest else min(end, self.known)
        window = self._cache.windows.use(place)
        if window is not None and window.last >= until:
            self._cache.hits += 1
            return window
        async with self._extending:
            window = self._cache.windows.use(place)
            if window is None:
                window = Window(place[2] - 1)
            window.last = max(window.last, self.kept_from - 1)
            has_ended = (window.sealed_at or 0) >= self.kept_from  # what lies behind is nothing
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
                header, size = await self._read_header(number, data)
            except Damaged:
                window.pass_over(number)
                continue
            window.add(header, size, data)
            if header.seal:
                break
        if not window.damaged:
            window.coalesce(numbers.start - 1)

    # columns

    async def _columns_at(self, found: Sequence[RecordSpan]) -> list[Layout]:
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
