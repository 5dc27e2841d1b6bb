"""A collection, read from the store of its cluster and not through brokers: for engines.

What brokers have acknowledged lies in the store, so nothing is lost by that, and brokers are
spared what a backlog would cost them. Where partitions end follows from the catalog and the
headers of some objects; of an object with records of many partitions, only those that are
wanted are read.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from changefeed.feeds.brokers.catalog import Partition
from changefeed.feeds.brokers.catalog_index import CatalogIndex, CollectionIndex
from changefeed.feeds.brokers.catalog_store import CatalogStore, open_cluster
from changefeed.feeds.brokers.errors import PositionGone
from changefeed.feeds.brokers.flush import FlushDamaged
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.row_reader import RowDamaged, RowReader
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.brokers.stores.store import ObjectStore, StoreRefused, StoreUnavailable
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeDamaged
from changefeed.feeds.eventlog.block_format import BlockDamaged, behind
from changefeed.feeds.feed import RangeId

_CACHE_BYTES = 32 * 1024 * 1024
_AHEAD = 16


class StoredCollection:
    """Make it with ``open``. Every method raises ``FeedUnavailable`` when the store does not
    answer, and ``FeedRefused`` when it never will.
    """

    def __init__(self, store: ObjectStore, catalogs: CatalogStore, name: str) -> None:
        self._catalogs = catalogs
        self._name = name
        self._readers = RowReaders(store, catalogs.newest.identity, _CACHE_BYTES, ahead=_AHEAD)
        self._index = CatalogIndex(catalogs.newest)

    @classmethod
    async def open(cls, store: ObjectStore, name: str) -> "StoredCollection":
        """Raise ``FeedRefused``, with advice, where there is no cluster or no collection."""
        with _answers_of_feeds():
            cluster = await open_cluster(store, create=False)
            catalogs = CatalogStore(store, cluster)
            await catalogs.load()
        found = cls(store, catalogs, name)
        found.collection()  # raises where there is none
        return found

    def collection(self) -> CollectionIndex:
        """Return the collection as the catalog last read has it."""
        return self._index.collection(self._name)

    async def routes(self) -> Routes:
        """Read the newest catalog, and return the collection as clients of brokers see it."""
        with _answers_of_feeds():
            newest = await self._catalogs.refresh()
        if newest is not self._index.catalog:
            self._index = CatalogIndex(newest)
        return Routes(topology_of(self._index, self._name), "http")

    async def ends(self, names: Sequence[RangeId]) -> Mapping[RangeId, int]:
        """Return the last sequence of partitions, as far as can be read now."""
        found = {}
        open_rows: dict[tuple[int, str], list[RangeId]] = {}
        for name in names:
            partition = self.collection().partition(name)
            if partition.last is None:
                open_rows.setdefault((partition.era, partition.broker), []).append(name)
            else:
                found[name] = partition.last
        for (era, broker), partitions in open_rows.items():
            with _damage_of(partitions[0]):
                ends = await (await self._row(era, broker)).ends()
            for name in partitions:
                end = ends.get((self._name, name))
                found[name] = 0 if end is None else end.last
        return found

    async def sequence_before(self, name: RangeId, time_us: int) -> int:
        """Return the last sequence before the first record committed at or after a time."""
        partition = self.collection().partition(name)
        with _damage_of(name):
            row = await self._row(partition.era, partition.broker)
            since = await row.first_since((self._name, name), time_us, partition.start)
        if since is None:
            return (await self.ends([name]))[name]
        section, times = since
        return max(partition.start, section.first - 1 + behind(times, time_us))

    async def blocks(
        self, name: RangeId, after: int, end: int, max_bytes: int
    ) -> Sequence[Block]:
        """Return some records of ``after < sequence <= end``, whole sections of them.

        They follow each other from ``after + 1`` on, but the first may begin before it. Raise
        ``PositionGone`` where retention has deleted them, ``RangeDamaged`` where they are
        missing, or not what was written.
        """
        partition = self._kept(name, after)
        try:
            found = await self._blocks(partition, after, max_bytes)
        except RangeDamaged:
            await self.routes()  # it may have been deleted since
            self._kept(name, after)
            raise
        if found:
            return found
        raise RangeDamaged(name, _missing(name, after, end))

    def _kept(self, name: RangeId, after: int) -> Partition:
        partition = self.collection().partition(name)
        if after < partition.start:
            raise PositionGone(name, after, partition.start)
        return partition

    async def _blocks(self, partition: Partition, after: int, most: int) -> Sequence[Block]:
        name = partition.id
        with _damage_of(name):
            row = await self._row(partition.era, partition.broker, fresh=False)
            found = await row.find((self._name, name), after, most)
            if not found:
                row = await self._row(partition.era, partition.broker)
                found = await row.find((self._name, name), after, most)
            layouts = await asyncio.gather(*(row.columns(*x) for x in found))
        return [
            Block(first=x.first, count=x.count, columns=layout)
            for (_, x), layout in zip(found, layouts, strict=True)
        ]

    async def _row(self, era: int, broker: str, *, fresh: bool = True) -> RowReader:
        row = self._readers.row(self._index.catalog, era, broker)
        if fresh or row.known == 0:
            await row.tail()
        return row


@contextmanager
def _damage_of(name: RangeId) -> Iterator[None]:
    try:
        with _answers_of_feeds():
            yield
    except (RowDamaged, FlushDamaged, BlockDamaged) as error:
        raise RangeDamaged(
            name,
            f"records of range {name!r} cannot be read: {error}. Restore the object from a "
            f"copy of the store; the other ranges go on",
        ) from error


@contextmanager
def _answers_of_feeds() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as error:
        raise FeedUnavailable(str(error)) from error
    except StoreRefused as error:
        raise FeedRefused(str(error)) from error


def _missing(name: RangeId, after: int, end: int) -> str:
    return (
        f"records {after + 1:,} to {end:,} of range {name!r} were there and are missing: the "
        f"store was restored from an older copy, or has lost objects. Restore them from a "
        f"copy; the other ranges go on"
    )
