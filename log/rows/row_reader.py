"""Reading a row ``wal/<era>/<broker>/<n>``, by brokers, by hosts and by engines.

A row is what can be read from 1 on without a gap, up to its first seal. What lies behind a
gap or a seal was never acknowledged. What can be read is there for good: a seal
takes the first number that is free.

Many objects are looked at in one step, as a *window*: all partitions of the row are read
through the same. Where a sequence lies is found by halving among the tables, and by going over
windows from there. A read goes over some windows and no further, so that partitions that are
read in turns find them in memory.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final

from changefeed.log.catalog.catalog import Row
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import joined
from changefeed.log.format.flush import (
    MAX_IN_FLIGHT,
    TABLE_EVERY,
    Ends,
    FlushHeader,
    ProducerKey,
    ProducerState,
    ends_after,
    producers_after,
    producers_by_key,
    table_before,
)
from changefeed.log.format.pack import Key, Records
from changefeed.log.protocol.messages import Block
from changefeed.log.rows.object_cache import ObjectCache
from changefeed.log.rows.row_objects import RowObjects
from changefeed.log.rows.row_runs import RowRuns, RunIndex
from changefeed.log.rows.windows import RecordSpan, Window
from changefeed.log.stores.store import ObjectStore

_LEAST_LEAP: Final = 16
_WINDOWS: Final = 16
"""A read that has found something goes over so many windows."""
_PLACES: Final = 8192
ALL: Final = 2**63
"""No partition has so many records."""


class RowReader(RowObjects):
    """One row. ``known``: objects up to there can be read; ``sealed_at``: its end, if known.

    Those below ``kept_from`` are deleted; what ``runs`` knows of is compacted. ``ahead`` and
    ``whole``: see ``RowObjects``.
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
        super().__init__(store, cluster, era, broker, cache, ahead=ahead, whole=whole)
        self.known = 0
        self.sealed_at: int | None = None
        self.kept_from = 1
        self.runs = RowRuns(store, cluster, era, broker)
        self._leapt = False
        self._damaged = 0
        self._looking = asyncio.Lock()
        self._lasts: dict[Key, int] = {}
        self._lasts_at = 0
        self._places: OrderedDict[tuple[Key, int], int] = OrderedDict()

    # what the row has

    @property
    def is_new(self) -> bool:
        """Whether it was never read, or nothing is known of what is kept of it."""
        if self.kept_from == 1:
            return self.known == 0 and not self._leapt
        return self.known < self.kept_from

    def add(self, number: int, data: bytes) -> None:
        """Take in the next object, as its writer knows it."""
        self._learn(self.take_in(number, data))

    def learn(self, row: Row) -> None:
        """Learn from the catalog where the row ends, and where what is kept begins."""
        assert row.broker == self.broker, f"{self.broker} learns of the row of {row.broker}"
        self.kept_from = max(self.kept_from, row.kept_from)
        self._skip_to(self.kept_from - 1)
        sealed_at = row.sealed_at
        if self.sealed_at is not None and self.sealed_at < self.kept_from:
            self.sealed_at = None  # made where an object had been deleted: it ends nothing
        if self.sealed_at is None and sealed_at is not None:
            self.sealed_at = sealed_at
            self._skip_to(sealed_at)

    async def tail(self, hint: int = 0) -> int:
        """Look for more objects; return ``known``.

        ``hint`` is a number that is known to have been acknowledged. Raise ``Damaged`` where
        the next object is not what was written, and may be a seal, behind which nothing
        counts. One that lies so far before another that it was acknowledged is none: what
        follows on it is read.
        """
        if self.sealed_at is not None:
            return self.known
        self._skip_to(hint)
        if not self._leapt:
            self._leapt = True
            self._skip_to(await self._leap())
        while self.sealed_at is None:
            number = self.known + 1
            try:
                header = await self.header(number)
            except Damaged:
                self._damaged = number
                if not await self.is_there(number + MAX_IN_FLIGHT):
                    raise
                self._skip_to(number)
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

    def _skip_to(self, number: int) -> None:
        self.known = max(self.known, number)

    def _learn(self, header: FlushHeader) -> None:
        if header.number != self.known + 1:
            return  # known already, from the store
        self.known = header.number
        if header.seal:
            self.sealed_at = header.number

    async def _window(self, number: int, *, newest: bool = False) -> Window:
        return await self.window(number, self.known, self.kept_from, newest=newest)

    # ends

    async def check_end(self) -> None:
        """Raise ``Damaged`` where more may lie behind what is known: ``tail`` stopped there."""
        if self._damaged > self.known:
            await self.there(self._damaged)

    async def ends(self) -> Ends:
        """Return the ends of its partitions after all that is known; from a few reads.

        Those of a row that is sealed are remembered.
        """
        if self.known != self.sealed_at:
            return await self._read_ends()
        return await self._cache.ends.get(self.key(self.known), self._read_ends) or {}

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
            final = await self.runs.final_run(self.kept_from)
            if final is not None:
                return final
        try:
            return [await self.there(x) for x in numbers]
        except Damaged:  # a catalog that this row has not learned of may say it is deleted
            final = await self.runs.final_run(self.kept_from, again=True)
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

    async def lasts(self) -> Mapping[Key, int]:
        """Return the last sequence of each partition that has records, as far as is known."""
        async with self._looking:  # of many that ask, one looks
            if not self._lasts_at or self._lasts_at + 1 < self.kept_from:
                await self._take_ends()
            while self._lasts_at < self.known:
                window = await self._window(self._lasts_at + 1)
                if window.damaged:
                    await self._take_ends()
                    break
                if window.last <= self._lasts_at:
                    break  # it was deleted meanwhile
                for key, found in window.spans.items():
                    self._lasts[key] = max(found[-1].last, self._lasts.get(key, 0))
                self._lasts_at = window.last
        return self._lasts

    async def _take_ends(self) -> None:
        known = self.known  # others may learn of more meanwhile
        self._lasts = {key: x.last for key, x in (await self.ends()).items()}
        self._lasts_at = known

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
                    self._keep_place(key, after, span.number)
                    return found
                found.append(span)
                after, size = span.last, size + span.bytes
            if window.last < min(number, self.known):
                break
            damaged = damaged or window.damaged_behind(key, number)
            number = window.last + 1
        await self._check_there(found, damaged or number)
        if damaged is None:  # else a later table may say that it had none
            self._keep_place(key, after, number)
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
        known = self._places.get((key, after))
        if known is not None:
            return max(known, self.kept_from)

        def is_before(header: FlushHeader) -> bool:
            end = ends_after([header]).get(key)
            return end is None or end.last <= after

        return await self._from_table(is_before)

    def _keep_place(self, key: Key, after: int, number: int) -> None:
        self._places[key, after] = number
        while len(self._places) > _PLACES:
            self._places.popitem(last=False)

    async def _blocks_at(self, found: Sequence[RecordSpan]) -> list[Block]:
        """Read the records of sections that follow each other, as one block.

        Raise ``Damaged``.
        """
        if not found:
            return []
        assert all(x.last + 1 == y.first for x, y in pairwise(found)), "spans leave a gap"
        layouts = await self.columns_at(found)
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
            spans = [(key, x) for key in keys for x in window.spans.get(key, ())]
            assert all(x.number in numbers for _, x in spans), f"{numbers} cuts a window"
            layouts = await self.columns_at([x for _, x in spans])
            yield [x.records(key, y) for (key, x), y in zip(spans, layouts, strict=True)]
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
                if span.latest_us >= time_us:
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
