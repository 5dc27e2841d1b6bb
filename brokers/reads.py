"""Reads of any partition of the cluster, by any broker.

The rows that this broker writes itself are known as they grow. Those of others are looked at
when somebody reads; and those of eras that are over do not change.
"""

import asyncio

from changefeed.brokers.era_writer import EraWriter
from changefeed.brokers.producers import Verdict, key_of, verdict_on
from changefeed.feeds.brokers.core_settings import CoreSettings
from changefeed.feeds.brokers.errors import PositionGone, position_beyond
from changefeed.feeds.brokers.extents import Extent, extent_of
from changefeed.feeds.brokers.flush import Ends
from changefeed.feeds.brokers.partition_reader import PartitionReader
from changefeed.feeds.brokers.protocol import AppendRequest, Block, ReadResult
from changefeed.feeds.brokers.ranges import Partition, Ranges, RangesCache
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.eventlog.errors import Damaged
from changefeed.feeds.feed import RangeId


class Reads:
    """``ranges`` are those of the newest catalog."""

    def __init__(
        self,
        ranges: RangesCache,
        readers: RowReaders,
        partitions: PartitionReader,
        writer: EraWriter,
        settings: CoreSettings,
    ) -> None:
        self._ranges = ranges
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
        ranges = self._ranges.of(collection)
        partition = ranges.partition(wanted)
        await self._check_gone(collection, partition, after)
        row = await self._row(partition)
        is_closed = partition.era < ranges.newest
        blocks = await self._partitions.read(row, collection, partition, after, max_bytes)
        await self._check_gone(collection, partition, after)  # deleted while it was read
        last = blocks[-1].last if blocks else after
        assert not blocks or last > after, f"{wanted!r} was read from {after} to {last}"
        if not is_closed:
            return ReadResult(blocks=blocks, last=last)
        return await self._of_closed(collection, ranges, partition, blocks, last)

    async def _of_closed(
        self,
        collection: str,
        ranges: Ranges,
        partition: Partition,
        blocks: list[Block],
        last: int,
    ) -> ReadResult:
        """Return what was read up to ``last``, and whether the partition ends there."""
        try:
            end = (await self.extent(collection, partition)).last
        except RangeDamaged:
            if not blocks:
                raise
            return ReadResult(blocks=blocks, last=last)  # its end may be read by the next
        if last > end:
            assert not blocks, f"{partition.id!r} has ended at {end}, and was read to {last}"
            raise position_beyond(partition.id, last, end)
        return ReadResult(
            blocks=blocks,
            last=end,
            ended=last == end,
            children=ranges.child_ranges(partition) if last == end else (),
        )

    async def _check_gone(self, collection: str, partition: Partition, after: int) -> None:
        """Raise ``PositionGone`` where retention has deleted what follows."""
        found = self._ranges.catalog.collection(collection)
        if partition.era < found.kept_era:
            start = (await self.extent(collection, partition)).start
        else:
            start = found.truncation_of(partition.id, partition.era, 0, 0).start
        if after < start:
            raise PositionGone(partition.id, after, start)

    async def extent(self, collection: str, partition: Partition) -> Extent:
        """Return what there is of a partition now; raise ``RangeDamaged``."""
        ends = await self._ends(partition)
        found = extent_of(self._ranges.catalog.collection(collection), partition, ends)
        assert found.start <= found.last, f"{partition.id!r} is gone beyond its end: {found}"
        return found

    async def verdict(
        self, collection: str, partition: Partition, request: AppendRequest
    ) -> Verdict:
        """Say what a request is to the closed row of a partition: as an open row would."""
        row = await self._row(partition)
        try:
            producers = await row.producers()
        except Damaged as error:
            text = f"what {partition.id!r} has of a producer cannot be read: {error}"
            raise RangeDamaged(partition.id, text) from error
        return verdict_on(request, producers.get(key_of(collection, request)))

    async def before(self, collection: str, wanted: RangeId, time_us: int) -> int | None:
        """See ``BrokerCore.sequence_before``."""
        partition = self._ranges.of(collection).partition(wanted)
        start = (await self.extent(collection, partition)).start
        row = await self._row(partition)
        found = await self._partitions.before(row, collection, partition, time_us, start)
        return None if found is None else max(start, found)

    async def _ends(self, partition: Partition) -> Ends:
        row = await self._row(partition)
        try:
            return await row.ends()
        except Damaged as error:
            text = f"the end of {partition.id!r} cannot be read: {error}"
            raise RangeDamaged(partition.id, text) from error

    async def _row(self, partition: Partition) -> RowReader:
        """Return the row of a partition, as far as it can be read now."""
        row = self._readers.row(self._ranges.catalog, partition.era, partition.broker)
        if self._writer.writer(partition.era) is None or partition.broker != self._writer.name:
            try:
                await row.tail()
            except Damaged as error:
                text = f"{partition.id!r} cannot be read on: {error}"
                raise RangeDamaged(partition.id, text) from error
        return row
