"""Reading a row ``wal/<era>/<broker>/<n>``, by brokers and by engines.

A row is what can be read from 1 on without a gap, up to its first seal. What lies behind a
gap or a seal was never acknowledged. What can be read is there for good: a seal
takes the first number that is free.

Where a sequence lies is known for the newest objects, from their headers; for older ones it
is found by halving among the tables, and by reading on from there.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from changefeed.feeds.brokers.catalog import Row
from changefeed.feeds.brokers.compacted_row import HEAD_BYTES, CompactedRow, KnownRun
from changefeed.feeds.brokers.errors import RowDamaged, records_damaged
from changefeed.feeds.brokers.flush import (
    MAX_IN_FLIGHT,
    TABLE_EVERY,
    Ends,
    FlushDamaged,
    FlushHeader,
    Gathered,
    Key,
    Place,
    ProducerKey,
    Reached,
    Section,
    cut_columns,
    decode_header,
    ends_after,
    gathered,
    header_bytes,
    producers_after,
    producers_by_key,
    section_columns,
    table_before,
)
from changefeed.feeds.brokers.names import flush_key
from changefeed.feeds.brokers.object_cache import KeptHeader, ObjectCache
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.recent_sections import RecentSections
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.eventlog.block_format import Layout
from changefeed.runtime.gather import gather_or_cancel

_RECENT = 4096
_READ_AHEAD = 4


class RowReader:
    """One row. ``known``: objects up to there can be read; ``sealed_at``: its end, if known.

    Those below ``kept_from`` are deleted; what ``compacted`` knows of is in runs.

    It is for brokers, which go on with the newest objects and so learn where their records
    lie. ``AheadReader`` is for those who read long stretches.
    """

    _least_leap = _RECENT
    """From where on the newest objects are looked at one by one."""

    def __init__(
        self,
        store: ObjectStore,
        cluster: str,
        era: int,
        broker: str,
        cache: ObjectCache,
    ) -> None:
        self.era = era
        self.broker = broker
        self.known = 0
        self.sealed_at: int | None = None
        self.kept_from = 1
        self.compacted = CompactedRow(store, cluster, era, broker)
        self._store = store
        self._cluster = cluster
        self._cache = cache
        self._recent = RecentSections()
        self._leapt = False

    # what the row has

    def key(self, number: int) -> str:
        return flush_key(self.era, self.broker, number)

    def add(self, number: int, data: bytes) -> None:
        """Take in the next object, as its writer knows it."""
        self._cache.add(self.key(number), data)
        header = decode_header(data, self._cluster, Place(self.era, self.broker, number))
        self._cache.headers.add(self.key(number), KeptHeader(header, header_bytes(data)))
        self._learn(header)

    def learn(self, row: Row) -> None:
        """Learn from the catalog where the row ends, and where what is kept begins."""
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

        ``hint`` is a number that is known to have been acknowledged.
        """
        if self.sealed_at is not None:
            return self.known
        self._skip_to(hint)
        await self._leap_once()
        while self.sealed_at is None:
            header = await self.header(self.known + 1)
            if header is None:
                break
            self._learn(header)
        return self.known

    async def reach(self, hint: int = 0) -> int:
        """As ``tail``, and past objects that are damaged, and were acknowledged.

        One that lies so far before another that it must have been is no seal.
        """
        while True:
            try:
                return await self.tail(hint)
            except RowDamaged:
                damaged = self.known + 1
                if not await self._is_there(damaged + MAX_IN_FLIGHT):
                    raise
                self._skip_to(damaged)

    async def _leap_once(self) -> None:
        if not self._leapt:
            self._leapt = True
            self._skip_to(await self._leap())

    async def _leap(self) -> int:
        """Return a number up to which all are there, found in steps that double.

        An object that exists was sent when all but a few before it were acknowledged.
        """
        sure, step, growing = self.known, _RECENT, True
        while step >= self._least_leap:
            if await self._is_there(sure + step + MAX_IN_FLIGHT):
                sure += step
                step = 2 * step if growing else step // 2
            else:
                step, growing = step // 2, False
        return sure

    async def _is_there(self, number: int) -> bool:
        """Whether there is an object, damaged or not."""
        try:
            return await self.header(number) is not None
        except RowDamaged:
            return True

    def _skip_to(self, number: int) -> None:
        if number > self.known:
            self.known = number
            self._recent.begin(number + 1)

    def _learn(self, header: FlushHeader) -> None:
        if header.number != self.known + 1:
            return  # known already, from the store
        self.known = header.number
        if header.seal:
            self.sealed_at = header.number
        self._recent.add(header, _RECENT)

    async def header(self, number: int) -> FlushHeader | None:
        """Return what an object holds; ``None`` if there is none. Raise ``RowDamaged``."""
        found = await self._header(number)
        return None if found is None else found.header

    async def _header(self, number: int) -> KeptHeader | None:
        key = self.key(number)
        found = self._cache.headers.use(key)
        if found is not None:
            return found
        data = self._cache.peek(key)
        if data is None:
            data = await self._store.get(key, 0, HEAD_BYTES)
        return None if data is None else await self._read_header(number, data)

    async def _read_header(self, number: int, data: bytes) -> KeptHeader:
        """Read the header of an object from its beginning."""
        key = self.key(number)
        try:
            if header_bytes(data) > len(data):
                data = await self._store.get(key, 0, header_bytes(data)) or b""
            header = decode_header(data, self._cluster, Place(self.era, self.broker, number))
        except FlushDamaged as error:
            self._cache.drop(key)  # it may be restored
            raise RowDamaged(f"{key} is not what was written: {error}") from error
        found = KeptHeader(header, header_bytes(data))
        self._cache.headers.add(key, found)
        return found

    async def there(self, number: int) -> FlushHeader:
        """Return what an object holds that should be there. Raise ``RowDamaged``."""
        return (await self._there(number)).header

    async def _there(self, number: int) -> KeptHeader:
        found = await self._header(number)
        if found is None:
            raise RowDamaged(f"{self.key(number)} is missing")
        return found

    # ends

    async def ends(self) -> Ends:
        """Return the ends of its partitions after all that is known; from a few reads.

        Those of a row that is sealed are remembered.
        """
        if self.known != self.sealed_at:
            return await self._read_ends()
        return await self._cache.ends.get(self.key(self.known), self._read_ends) or {}

    async def _read_ends(self) -> Ends:
        end = await self._end()
        return end.ends if isinstance(end, KnownRun) else ends_after(end)

    async def producers(self) -> Mapping[ProducerKey, Reached]:
        """Return how far producers have come after all that is known; as ``ends``."""
        end = await self._end()
        if isinstance(end, KnownRun):
            return producers_by_key(end.run.producers)
        return producers_after(end)

    async def _end(self) -> KnownRun | Sequence[FlushHeader]:
        """Return what says how all ends: the final run, or the last table and what follows."""
        last = self.known
        if last == self.sealed_at:
            seal = await self.there(last)
            if seal.table is not None:
                return [seal]
            last -= 1
        if last < 1:
            return []
        if table_before(last) < self.kept_from:
            final = await self.compacted.final_run(self.kept_from)
            if final is not None:
                return final
        return [await self.there(x) for x in range(table_before(last), last + 1)]

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

    def is_recent(self, key: Key, after: int) -> bool:
        """Whether what follows on a sequence can lie in the newest objects only."""
        from_the_first = self.kept_from == 1 and self._recent.since == 1
        return from_the_first or self._recent.has_all_after(key, after)

    async def read(self, key: Key, after: int, max_bytes: int) -> list[Block]:
        """Return records of a partition after a sequence, about so many bytes of them.

        Raise ``RangeDamaged`` where what should be there is not.
        """
        blocks: list[Block] = []
        size = 0
        try:
            number = await self._locate(key, after)
            while number is not None and size < max_bytes:
                block = await self._block(key, number, after)
                if block is not None:
                    assert block.last > after, f"{key}: read on from {after} to {block.last}"
                    after = block.last
                    blocks.append(block)
                    size += block.bytes
                number = await self._next_with(key, number + 1, after)
        except RowDamaged as error:
            if blocks:
                return blocks  # the next read begins with the damage
            raise records_damaged(key, after, error) from error
        return blocks

    async def gathered(
        self, numbers: range, keys: AbstractSet[Key]
    ) -> AsyncIterator[Sequence[Gathered]]:
        """Yield what objects have of some partitions, in order, a few read ahead.

        Raise ``RowDamaged``.
        """

        async def read(number: int) -> Sequence[Gathered]:
            sections = (await self.there(number)).sections
            wanted = [x for x in sections if (x.collection, x.partition) in keys]
            columns = await self.columns_of(number, wanted)
            return [gathered(x, y) for x, y in zip(wanted, columns, strict=True)]

        for begin in range(0, len(numbers), _READ_AHEAD):
            for found in await gather_or_cancel(
                *map(read, numbers[begin : begin + _READ_AHEAD])
            ):
                yield found

    async def columns_of(self, number: int, sections: Sequence[Section]) -> list[Layout]:
        """Read the columns of some sections of an object at once, by the slice they lie in.

        Raise ``RowDamaged``.
        """
        if not sections:
            return []
        key = self.key(number)
        kept = self._cache.peek(key)
        try:
            if kept is not None:
                return [section_columns(kept, x) for x in sections]
            head = (await self._there(number)).size  # its columns begin there
            begin = min(x.offset for x in sections)
            end = max(x.offset + x.bytes for x in sections)
            data = await self._store.get(key, head + begin, head + end)
            if data is None:
                raise RowDamaged(f"{key} is missing")
            return [cut_columns(data[x.offset - begin :][: x.bytes], x) for x in sections]
        except FlushDamaged as error:
            self._cache.drop(key)  # it may be restored
            raise RowDamaged(f"{key} is not what was written: {error}") from error

    async def first_since(
        self, key: Key, time_us: int, after: int = 0
    ) -> tuple[Section, bytes] | None:
        """Return the first section that has a commit time or a later one, and its times.

        Only of what lies after a sequence: what retention took may have had later times.
        """

        def is_before(table: FlushHeader) -> bool:
            end = ends_after([table]).get(key)
            return end is None or end.last == 0 or end.latest_us < time_us

        for number in range(await self._from_table(is_before), self.known + 1):
            section = _section(await self.there(number), key)
            if section is None or section.last <= after or section.latest_us < time_us:
                continue
            times = (await self._columns(number, section)).times
            if max(memoryview(times).cast("q")) >= time_us:
                return section, times
        return None

    async def _block(self, key: Key, number: int, after: int) -> Block | None:
        section = _section(await self.there(number), key)
        if section is None or section.last <= after:
            return None
        if section.first > after + 1:
            raise RowDamaged(f"records {after + 1} to {section.first - 1} are missing")
        columns = await self._columns(number, section)
        return Block(first=section.first, count=section.count, columns=columns)

    async def _columns(self, number: int, section: Section) -> Layout:
        """Return the columns of a section; what is damaged is read from the store again."""
        try:
            return section_columns(await self._object(number), section)
        except FlushDamaged:
            self._cache.drop(self.key(number))
        try:
            return section_columns(await self._object(number), section)
        except FlushDamaged as error:
            raise RowDamaged(f"{self.key(number)} is not what was written: {error}") from error

    async def _object(self, number: int) -> bytes:
        key = self.key(number)
        data = await self._cache.get(key, lambda: self._store.get(key))
        if data is None:
            raise RowDamaged(f"{key} is missing")
        return data

    async def _locate(self, key: Key, after: int) -> int | None:
        """Return the number from which to look for what follows on a sequence."""
        if self._recent.since <= self.kept_from or self._recent.has_all_after(key, after):
            return self._recent.first_beyond(key, after)

        def is_before(table: FlushHeader) -> bool:
            end = ends_after([table]).get(key)
            return end is None or end.last <= after

        return await self._next_with(key, await self._from_table(is_before), after)

    async def _from_table(self, holds: Callable[[FlushHeader], bool]) -> int:
        """Return the number of ``last_table``, or of the first table if it holds of none."""
        table = await self.last_table(holds)
        first, _ = self._tables()
        number = first * TABLE_EVERY + 1 if table is None else table.number
        return max(number, self.kept_from)

    async def _next_with(self, key: Key, number: int, after: int) -> int | None:
        """Return the next object from a number on that has records after a sequence."""
        while number <= self.known:
            if number >= self._recent.since:
                return self._recent.first_beyond(key, after, number)
            section = _section(await self.there(number), key)
            if section is not None and section.last > after:
                return number
            number += 1
        return None


def _section(header: FlushHeader, key: Key) -> Section | None:
    return next((x for x in header.sections if (x.collection, x.partition) == key), None)
