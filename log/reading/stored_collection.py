"""A collection, read from the store of its cluster and not through brokers: for engines.

What brokers have acknowledged lies in the store, so nothing is lost by that, and brokers are
spared what a backlog would cost them. Where partitions end follows from the catalog and the
headers of some objects; of an object with records of many partitions, only those that are
wanted are read.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from typing import NamedTuple

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.catalog.names import run_of, segments_of
from changefeed.log.catalog.ranges import Partition, Ranges
from changefeed.log.errors import answers_of_feeds
from changefeed.log.format.flush import Ends
from changefeed.log.format.segment_file import Segment, SegmentSlice
from changefeed.log.protocol.messages import Block, ReadResult
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.topology import topology_of
from changefeed.log.protocol.wire import PartitionBounds, PartitionNews
from changefeed.log.rows.extents import extent_of
from changefeed.log.rows.partition_reader import PartitionReader, damage_of
from changefeed.log.rows.row_reader import ALL, RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.rows.row_runs import RunPart
from changefeed.log.stores.local_store import LocalStore
from changefeed.log.stores.store import ObjectStore

_CACHE_BYTES = 32 * 1024 * 1024
_AHEAD_IN_FILES = 512
"""Headers that are read at once: of files that costs nearly nothing."""
_Bounds = Mapping[RangeId, PartitionBounds]


class SegmentRows(NamedTuple):
    """What a segment holds of a partition: rows of some of its row groups, in order."""

    segment: Segment
    rows: Sequence[SegmentSlice]

    @property
    def first(self) -> int:
        return self.rows[0].first

    @property
    def last(self) -> int:
        return self.rows[-1].last


class StoredCollection:
    """A ``Source``. Make it with ``open``. Every method raises ``FeedUnavailable`` when the
    store does not answer, and ``FeedRefused`` when it never will.
    """

    def __init__(self, store: ObjectStore, catalogs: CatalogStore, name: str) -> None:
        self.directory = store.directory if isinstance(store, LocalStore) else None
        self.cluster = catalogs.newest.identity
        self.name = name
        self._store = store
        self._catalogs = catalogs
        ahead = None if self.directory is None else _AHEAD_IN_FILES
        self._readers = RowReaders(store, catalogs.newest.identity, _CACHE_BYTES, ahead=ahead)
        self._partitions = PartitionReader(store, catalogs, self._readers)

    @classmethod
    async def open(cls, store: ObjectStore, name: str) -> "StoredCollection":
        """Raise ``FeedRefused``, with advice, where there is no cluster or no collection."""
        with answers_of_feeds():
            cluster = await open_cluster(store, create=False)
            catalogs = CatalogStore(store, cluster)
            await catalogs.refresh()
            await catalogs.find(name)
        return cls(store, catalogs, name)

    @property
    def ranges(self) -> Ranges:
        """Its partitions."""
        return self._partitions.ranges.of(self.name)

    async def routes(self, *, at_least: int = 0) -> Routes:
        """Read the newest catalog, and return the collection as clients of brokers see it."""
        del at_least  # there is no later one
        await self._refresh()
        return Routes(topology_of(self._catalogs.newest, self.name), "http")

    async def _refresh(self) -> None:
        """Read the newest catalog: what was deleted since an older one is no end."""
        with answers_of_feeds():
            await self._catalogs.refresh()

    async def ends(self, names: Sequence[RangeId]) -> _Bounds:
        """Return where partitions begin and end. Raise ``RangeDamaged`` where none can say."""
        await self._refresh()
        return await self._ends_of(names)

    async def _ends_of(self, names: Sequence[RangeId]) -> _Bounds:
        found, rows = {}, dict[tuple[int, str], Ends]()
        for partition in map(self.ranges.partition, names):
            row = (partition.era, partition.broker)
            if row not in rows:
                with answers_of_feeds():
                    rows[row] = await self._partitions.ends(partition)
            collection = self._catalogs.newest.collection(self.name)
            there = extent_of(collection, partition, rows[row])
            found[partition.id] = PartitionBounds(start=there.start, last=there.last)
        return found

    async def _has_ended(self, partition: Partition) -> bool:
        """Whether a partition gets no more records, as far as can be read now."""
        if partition.era < self.ranges.newest:
            return True
        with answers_of_feeds():
            row = await self._partitions.row(partition, fresh=False)
        return row.sealed_at is not None

    async def end(self, name: RangeId, *, of_writer: bool = False) -> PartitionBounds:
        """See ``Source.end``."""
        del of_writer
        await self._refresh()
        with answers_of_feeds():
            return await self._partitions.bounds(self.name, name)

    async def news(
        self, after: Mapping[RangeId, int], *, wait: float
    ) -> Mapping[RangeId, PartitionNews]:
        """See ``Source.news``: it never waits."""
        del wait
        rows, found = dict[tuple[int, str], list[RangeId]](), {}
        for partition in map(self.ranges.partition, after):
            rows.setdefault((partition.era, partition.broker), []).append(partition.id)
        for names in rows.values():  # thousands of partitions lie in one
            try:
                ends = await self._ends_of(names)
            except RangeDamaged:
                ends = {}  # ``read`` says which object is damaged
            ended = await self._has_ended(self.ranges.partition(names[0]))
            for name in names:
                last = ends[name].last if ends else None
                if ended or last != after[name]:
                    found[name] = PartitionNews(last=last, ended=ended)
        return found

    async def read(self, name: RangeId, *, after: int, most: int, wait: float) -> ReadResult:
        """See ``Source.read``: it never waits."""
        del wait
        blocks = await self._known(name, after, most)
        if not blocks:
            blocks = await self._blocks(name, after, most)
        if not blocks and await self._has_ended(self.ranges.partition(name)):
            await self._refresh()  # it may say by now where the partition has ended
            blocks = await self._blocks(name, after, most)
        with answers_of_feeds():
            return await self._partitions.result(self.name, name, after, blocks)

    async def _known(self, name: RangeId, after: int, max_bytes: int) -> Sequence[Block]:
        """Read what is known to be there, also where it lies in segments and behind them.

        What is missing ends it: it may be elsewhere by now, and is looked for again.
        """
        blocks: list[Block] = []
        size = 0
        with suppress(RangeDamaged):
            while size < max_bytes:
                more = await self._blocks(name, after, max_bytes - size, fresh=False)
                if not more or (blocks and more[0].first <= after):
                    break  # what begins before is read apart: borders of slices differ
                blocks += more
                size += sum(x.bytes for x in more)
                after = more[-1].last
        return blocks

    async def _blocks(
        self, name: RangeId, after: int, max_bytes: int, *, end: int = ALL, fresh: bool = True
    ) -> list[Block]:
        with answers_of_feeds():
            return await self._partitions.blocks(
                self.name, name, after, max_bytes, end=end, fresh=fresh
            )

    async def sequence_before(self, name: RangeId, time_us: int) -> int:
        """See ``Source.sequence_before``."""
        await self._refresh()
        with answers_of_feeds():
            return await self._partitions.sequence_before(self.name, name, time_us)

    async def part(
        self, name: RangeId, after: int, end: int, max_bytes: int
    ) -> Sequence[Block] | SegmentRows:
        """Return some records of ``after < sequence <= end``, or where a segment has them.

        Blocks are whole sections and follow each other from ``after + 1`` on, but the first
        may begin before it. A segment holds ``after + 1``, too. Raise ``RangeRefused`` where
        retention has deleted the records, ``RangeDamaged`` where they are missing, or not
        what was written.

        What is not known yet is looked for: others may have seen more of the row.
        """
        assert after < end, f"range {name!r}: nothing lies between {after} and {end}"
        found = await self._part(name, after, end, max_bytes, fresh=False)
        if not found:
            await self._refresh()
            found = await self._part(name, after, end, max_bytes, fresh=True)
        if not found:
            raise damaged(name, after, end)
        return found

    async def _part(
        self, name: RangeId, after: int, end: int, most: int, *, fresh: bool
    ) -> Sequence[Block] | SegmentRows:
        row = await self._row(name, after)
        with answers_of_feeds(), damage_of(name, "runs"):
            await row.runs.look_behind()
            held = await row.runs.holding((self.name, name), after)
        if held and isinstance(held[0], SegmentSlice):
            return next(_by_segment(held))
        return await self._blocks(name, after, most, end=end, fresh=fresh)

    async def look_again(self, name: RangeId) -> None:
        """A segment was gone: read the newest catalog, and look for runs."""
        await self._refresh()
        with answers_of_feeds(), damage_of(name, "runs"):
            row = await self._partitions.row(self.ranges.partition(name), fresh=False)
            await row.runs.look(again=True)

    async def in_segments(self, name: RangeId, after: int, end: int) -> Sequence[SegmentRows]:
        """Return where segments hold records of ``after < sequence <= end``, in order."""
        assert after <= end, f"range {name!r}: {end} lies before {after}"
        row = await self._row(name, after)
        with answers_of_feeds(), damage_of(name, "runs"):
            await row.runs.look()
            runs = row.runs.since((self.name, name), -sys.maxsize, after)
            held = [x async for x in runs if x.first <= end]
        return [*_by_segment(held)]

    async def segment_ends(self) -> Mapping[RangeId, int]:
        """Return up to where partitions are in runs, of the rows that have segments."""
        with answers_of_feeds():
            listed = await self._store.list(segments_of(self.name))
        places = [place for x in listed if (place := run_of(x.key)) is not None]
        last = {(x.era, x.broker): x for x in sorted(places)}
        found: dict[RangeId, int] = {}
        for era, broker, first in (x for x in last.values() if x.era in self.ranges.eras):
            with answers_of_feeds():
                row = self._readers.row(self._catalogs.newest, era, broker)
                run = await row.runs.run(first)
            ends = {} if run is None else run.ends
            found |= {x: y.last for (name, x), y in ends.items() if name == self.name}
        return found

    async def read_object(self, key: str, begin: int, end: int) -> bytes | None:
        """Return bytes of an object, without ``end``; ``None`` if there is none."""
        with answers_of_feeds():
            return await self._store.get(key, begin, end)

    async def _row(self, name: RangeId, after: int) -> RowReader:
        """Return a partition's row as it is known; raise ``RangeRefused``."""
        with answers_of_feeds():
            partition = await self._partitions.kept(self.name, name, after)
            return await self._partitions.row(partition, fresh=False)


def _by_segment(held: Sequence[RunPart]) -> Iterator[SegmentRows]:
    """Yield what lies in segments, one after the other."""
    rows = (x for x in held if isinstance(x, SegmentSlice))
    for _, found in groupby(rows, key=lambda x: x.key):
        of_one = [*found]
        assert all(x.last + 1 == y.first for x, y in pairwise(of_one)), "rows leave a gap"
        yield SegmentRows(of_one[0].segment, of_one)


def damaged(name: RangeId, after: int, end: int) -> RangeDamaged:
    """Return the error for records that were there and are not found any more."""
    return RangeDamaged(
        name,
        f"records {after + 1:,} to {end:,} of range {name!r} were there and are missing: the "
        f"store was restored from an older copy, or has lost objects. Restore them from a "
        f"copy; the other ranges go on",
    )
