"""Records of a partition, wherever they lie: in the newest objects, in runs, in older ones.

What is in runs may be in objects, too, until these are deleted; and between two looks an
object may become part of a run. So where something is missing, runs are looked for
once more, and only what is in neither is damaged.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import update_wrapper
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.ranges import Partition, RangesCache
from changefeed.log.errors import Damaged, position_beyond, position_gone, unreadable
from changefeed.log.format.flush import Ends
from changefeed.log.format.pack import Key
from changefeed.log.ids import LAST_SEQUENCE
from changefeed.log.protocol.messages import Block, ReadResult
from changefeed.log.protocol.wire import PartitionBounds
from changefeed.log.rows.extents import Extent, extent_of
from changefeed.log.rows.row_reader import ALL, RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.rows.segment_reader import SegmentReader
from changefeed.log.stores.store import ObjectStore

EARLIEST: Final = -(2**63)
"""A time before all others, in microseconds."""
P = ParamSpec("P")
T = TypeVar("T")
_Method = Callable[Concatenate["PartitionReader", P], Coroutine[Any, Any, T]]


def _by_newest(method: _Method[P, T]) -> _Method[P, T]:
    """Let a method raise ``RangeDamaged`` only by the newest catalog.

    By an older one, what retention has deleted since is missing: a process that was frozen
    would tell people to restore it.
    """

    async def asked(self: "PartitionReader", /, *args: P.args, **named: P.kwargs) -> T:
        while True:
            number = self.catalogs.newest.number
            try:
                return await method(self, *args, **named)
            except RangeDamaged:
                if await self.is_newest(number):
                    raise

    update_wrapper(asked, method)
    return asked


class PartitionReader:
    """Reads the partitions of the newest catalog that is known, by collection and id.

    Every method may raise ``RangeUnknown``, ``RangeDamaged`` where something is missing or not
    what was written, and what the store raises. ``is_ours``: this process writes the row of a
    partition, which is known as it grows; the others are looked at when somebody reads.
    """

    def __init__(
        self,
        store: ObjectStore,
        catalogs: CatalogStore,
        rows: RowReaders,
        is_ours: Callable[[Partition], bool] = lambda _: False,
    ) -> None:
        self.catalogs = catalogs
        self.ranges = RangesCache(lambda: catalogs.newest)
        self._rows = rows
        self._segments = SegmentReader(store, rows.cache)
        self._is_ours = is_ours

    async def row(self, partition: Partition, *, fresh: bool = True) -> RowReader:
        """Return the row of a partition, ``fresh``: as far as it can be read now.

        It ends where an object is missing only by the newest catalog, as in ``_by_newest``.
        """
        while True:
            catalog = self.catalogs.newest
            row = self._rows.row(catalog, partition.era, partition.broker)
            is_known = row.sealed_at is not None or not (fresh or row.is_new)
            if is_known or self._is_ours(partition):
                return row
            with suppress(Damaged):  # who reads up to there is told
                await row.tail()
            if await self.is_newest(catalog.number):
                return row

    async def is_newest(self, number: int) -> bool:
        """Whether there is no catalog behind one: what is missing was not deleted."""
        return (await self.catalogs.refresh()).number == number

    @_by_newest
    async def extent(self, name: str, partition: Partition) -> Extent:
        """Return what there is of a partition now."""
        row = await self.row(partition)
        with damage_of(partition.id, "the end"):
            ends = await row.ends()
        found = extent_of(self.catalogs.newest.collection(name), partition, ends)
        assert found.start <= found.last, f"{partition.id!r} is gone beyond its end: {found}"
        return found

    async def start(self, name: str, partition: Partition) -> int:
        """Return the sequence up to which retention has deleted a partition.

        Of an era that is gone those are all, and ``LAST_SEQUENCE`` where its end is damaged:
        nobody can say whether a reader had them all, so each is refused until it is reset.
        """
        if self._is_gone(name, partition):
            try:
                return (await self.extent(name, partition)).start
            except RangeDamaged:
                return LAST_SEQUENCE
        found = self.catalogs.newest.collection(name)
        return found.truncation_of(partition.id, partition.era, 0, 0).start

    def _is_gone(self, name: str, partition: Partition) -> bool:
        """Whether retention has taken all of its era."""
        return partition.era < self.catalogs.newest.collection(name).kept_era

    async def bounds(self, name: str, wanted: RangeId) -> PartitionBounds:
        """Return where the records of a partition begin and end now."""
        found = await self.extent(name, self.ranges.of(name).partition(wanted))
        return PartitionBounds(start=found.start, last=found.last)

    @_by_newest
    async def ends(self, partition: Partition) -> Ends:
        """Return the ends of all partitions in the row of one.

        Raise ``RangeDamaged``, too, where there may be more that cannot be read.
        """
        row = await self.row(partition)
        with damage_of(partition.id, "the end"):
            await row.check_end()
            return await row.ends()

    async def kept(self, name: str, wanted: RangeId, after: int) -> Partition:
        """Return a partition; raise ``RangeRefused`` if what follows is not all there."""
        partition = self.ranges.of(name).partition(wanted)
        start = await self.start(name, partition)
        if after < start:
            raise position_gone(wanted, after, start)
        return partition

    @_by_newest
    async def blocks(
        self,
        name: str,
        wanted: RangeId,
        after: int,
        max_bytes: int,
        *,
        end: int = ALL,
        fresh: bool = True,
    ) -> list[Block]:
        """Return records after a sequence, and at least up to ``end`` if there are so many.

        About so many bytes of them. Raise ``RangeRefused``.
        """
        partition = await self.kept(name, wanted, after)
        if self._is_gone(name, partition):
            return []
        row, key = await self.row(partition, fresh=fresh), (name, wanted)
        try:
            await row.runs.look_behind()
            blocks = await self._compacted(row, key, after, max_bytes)
            if not blocks:
                blocks = await _in_objects(row, key, after, max_bytes, end)
        except Damaged as error:
            blocks = await self._look_again(row, key, after, max_bytes)
            if not blocks:
                raise unreadable(wanted, f"records after {after:,}", error) from error
        assert not blocks or blocks[-1].last > after, f"{wanted!r} was read back from {after}"
        return blocks

    async def _look_again(
        self, row: RowReader, key: Key, after: int, max_bytes: int
    ) -> list[Block]:
        """Look for runs that hold what was missing elsewhere."""
        try:
            await row.runs.look(again=True)
            return await self._compacted(row, key, after, max_bytes)
        except Damaged as error:
            raise unreadable(key[1], f"records after {after:,}", error) from error

    async def _compacted(
        self, row: RowReader, key: Key, after: int, max_bytes: int
    ) -> list[Block]:
        held = await row.runs.holding(key, after)
        return await self._segments.read(held[0], after, max_bytes) if held else []

    async def read(self, name: str, wanted: RangeId, after: int, max_bytes: int) -> ReadResult:
        """Return what follows on a sequence. Raise as ``blocks`` and ``result`` do."""
        blocks = await self.blocks(name, wanted, after, max_bytes)
        return await self.result(name, wanted, after, blocks)

    async def result(
        self, name: str, wanted: RangeId, after: int, blocks: Sequence[Block]
    ) -> ReadResult:
        """Return what was read, and whether the partition ends there.

        Raise ``RangeRefused`` where ``after`` lies behind the end of one that is closed.
        """
        ranges = self.ranges.of(name)
        partition = ranges.partition(wanted)
        last = blocks[-1].last if blocks else after
        if partition.era == ranges.newest:
            return ReadResult(blocks=blocks, last=last)
        try:
            if self._is_gone(name, partition):
                end = max(last, await self.start(name, partition))
            else:
                end = (await self.extent(name, partition)).last
        except RangeDamaged:
            if not blocks:
                raise
            return ReadResult(blocks=blocks, last=last)  # its end may be read by the next
        if last > end:
            assert not blocks, f"{wanted!r} has ended at {end}, and was read to {last}"
            raise position_beyond(wanted, last, end)
        children = ranges.child_ranges(partition) if last == end else ()
        return ReadResult(blocks=blocks, last=end, ended=last == end, children=children)

    @_by_newest
    async def sequence_before(self, name: str, wanted: RangeId, time_us: int) -> int:
        """Return the last sequence before the first record committed at or after a time.

        If no record is that late yet, return the last sequence of all; never less than the last
        that retention has deleted. ``EARLIEST`` asks for that one alone, and reads no record,
        so that a reader gets what lies before a damaged one.
        """
        partition, key = self.ranges.of(name).partition(wanted), (name, wanted)
        start = await self.start(name, partition)
        if time_us == EARLIEST or self._is_gone(name, partition):
            return start
        row = await self.row(partition)
        with damage_of(partition.id, "a record of a time"):
            end = (await row.ends()).get(key)  # what comes later is of that time
            try:
                found = await self._before(row, key, time_us, start)
            except Damaged:  # it may have become part of a run
                await row.runs.look(again=True)
                found = await self._before(row, key, time_us, start)
        last = 0 if end is None else end.last
        return max(start, last if found is None else found)

    async def _before(self, row: RowReader, key: Key, time_us: int, start: int) -> int | None:
        await row.runs.look_behind()
        async for held in row.runs.since(key, time_us, start):
            before = await self._segments.sequence_before(held, time_us, start)
            if before is not None:
                return before
        return await row.sequence_before(key, time_us, start)


@contextmanager
def damage_of(name: RangeId, what: str) -> Iterator[None]:
    """Raise ``RangeDamaged`` for damage: ``what`` of a range cannot be read."""
    try:
        yield
    except Damaged as error:
        raise unreadable(name, what, error) from error


async def _in_objects(
    row: RowReader, key: Key, after: int, max_bytes: int, end: int
) -> list[Block]:
    """Read records of a partition that are in no run.

    Raise ``Damaged`` where none follows, and the row says that some do.
    """
    blocks = await row.read(key, after, max_bytes, end)
    if blocks or (row.kept_from == 1 and row.sealed_at is None):
        return blocks
    found = (await row.ends()).get(key)
    if found is not None and found.last > after:
        blocks = await row.read(key, after, max_bytes, end)  # they may just have come
        if not blocks:
            raise Damaged(f"records {after + 1:,} to {found.last:,} are missing")
    return blocks
