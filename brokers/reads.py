"""Reads of any partition of the cluster, by any broker.

The rows that this broker writes itself are known as they grow. Those of others are looked at
when somebody reads; and those of eras that are over do not change.
"""

import asyncio
from collections.abc import Callable

from changefeed.brokers.era_writer import EraWriter
from changefeed.brokers.producers import Taken, check_closed
from changefeed.feeds.brokers.catalog import Partition
from changefeed.feeds.brokers.catalog_index import CatalogIndex, CollectionIndex
from changefeed.feeds.brokers.core_settings import CoreSettings
from changefeed.feeds.brokers.errors import PositionGone, RowDamaged
from changefeed.feeds.brokers.flush import PartitionEnd
from changefeed.feeds.brokers.partition_reader import PartitionReader
from changefeed.feeds.brokers.protocol import Batch, Block, ReadResult
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.errors import RangeDamaged, RangeRefused
from changefeed.feeds.feed import FeedRange, RangeId


class Reads:
    """``index`` returns the newest catalog's index."""

    def __init__(
        self,
        index: Callable[[], CatalogIndex],
        readers: RowReaders[RowReader],
        partitions: PartitionReader,
        writer: EraWriter,
        settings: CoreSettings,
    ) -> None:
        self._index = index
        self._readers = readers
        self._partitions = partitions
        self._writer = writer
        self._settings = settings

    async def read(
        self, collection: str, partition: RangeId, after: int, max_bytes: int, wait: float
    ) -> ReadResult:
        """See ``BrokerCore.read``."""
        until = asyncio.get_running_loop().time() + wait
        while True:
            result = await self._read_now(collection, partition, after, max_bytes)
            now = asyncio.get_running_loop().time()
            if result.blocks or result.ended or now >= until:
                return result
            await self._writer.changed.wait(min(until, now + self._settings.catalog_interval))

    async def _read_now(
        self, collection: str, wanted: RangeId, after: int, max_bytes: int
    ) -> ReadResult:
        index = self._index().collection(collection)
        partition = index.partition(wanted)
        if after < partition.start:
            raise PositionGone(wanted, after, partition.start)
        if partition.last is not None and after > partition.last:
            raise RangeRefused(wanted, _beyond(partition, after))
        row = await self._row(partition)
        blocks = []
        if partition.last is None or after < partition.last:
            blocks = await self._blocks(row, collection, partition, after, max_bytes)
        last = blocks[-1].first + blocks[-1].count - 1 if blocks else after
        assert not blocks or last > after, f"{wanted!r} was read from {after} to {last}"
        assert not blocks or partition.last is None or last <= partition.last, (
            f"{wanted!r} has ended at {partition.last}, and was read to {last}"
        )
        ended = partition.last is not None and last == partition.last
        return ReadResult(
            blocks=blocks,
            last=last if partition.last is None else partition.last,
            ended=ended,
            children=_children(index, partition) if ended else (),
        )

    async def _blocks(
        self, row: RowReader, collection: str, partition: Partition, after: int, most: int
    ) -> list[Block]:
        blocks = await self._partitions.read(row, collection, partition, after, most)
        now = self._index().collection(collection).partition(partition.id)
        if after < now.start:  # it was deleted while it was read
            raise PositionGone(partition.id, after, now.start)
        return blocks

    async def end(self, collection: str, wanted: RangeId) -> int:
        """See ``BrokerCore.end``."""
        partition = self._index().collection(collection).partition(wanted)
        if partition.last is not None:
            return partition.last
        end = await self._end(collection, partition)
        return 0 if end is None else end.last

    async def reached(self, collection: str, batch: Batch) -> int | Taken:
        """Return the last of its producer's numbers that a closed partition has.

        ``Taken`` where it has other records than those of the batch under its numbers.
        """
        partition = self._index().collection(collection).partition(batch.partition)
        return check_closed(await self._end(collection, partition), batch)

    async def before(self, collection: str, wanted: RangeId, time_us: int) -> int | None:
        """See ``BrokerCore.sequence_before``."""
        partition = self._index().collection(collection).partition(wanted)
        row = await self._row(partition)
        found = await self._partitions.before(row, collection, partition, time_us)
        return None if found is None else max(partition.start, found)

    async def _end(self, collection: str, partition: Partition) -> PartitionEnd | None:
        row = await self._row(partition)
        try:
            return (await row.ends()).get((collection, partition.id))
        except RowDamaged as error:
            text = f"the end of {partition.id!r} cannot be read: {error}"
            raise RangeDamaged(partition.id, text) from error

    async def _row(self, partition: Partition) -> RowReader:
        """Return the row of a partition, as far as it can be read now."""
        row = self._readers.row(self._index().catalog, partition.era, partition.broker)
        if self._writer.writer(partition.era) is None or partition.broker != self._writer.name:
            try:
                await row.tail()
            except RowDamaged as error:
                text = f"{partition.id!r} cannot be read on: {error}"
                raise RangeDamaged(partition.id, text) from error
        return row


def _children(index: CollectionIndex, partition: Partition) -> tuple[FeedRange, ...]:
    return tuple(index.as_range(x) for x in index.children(partition))


def _beyond(partition: Partition, after: int) -> str:
    return (
        f"position {after:,} lies behind the end of range {partition.id!r}, which has "
        f"{partition.last:,} records: it belongs to another log, or to an older copy of this "
        f"one. Reset this range to its beginning"
    )
