"""Records of a partition, wherever they lie: in the newest objects, in runs, in older ones.

What is in runs may be in objects, too, until these are deleted; and between two looks an
object may become part of a run. So where something is missing, runs are looked for
once more, and only what is in neither is damaged.
"""

from changefeed.feeds.brokers.errors import records_damaged
from changefeed.feeds.brokers.pack import Key
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.ranges import Partition
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.row_runs import RunPart
from changefeed.feeds.brokers.segment_reader import SegmentReader
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.eventlog.errors import Damaged


class PartitionReader:
    """Raises ``RangeDamaged`` where what should be there is not."""

    def __init__(self, segments: SegmentReader) -> None:
        self._segments = segments

    async def read(
        self, row: RowReader, name: str, partition: Partition, after: int, max_bytes: int
    ) -> list[Block]:
        """Return records after a sequence, about so many bytes of them."""
        key = (name, partition.id)
        try:
            await row.runs.look_behind(row.kept_from)
            blocks = await self._compacted(row, key, after, max_bytes)
            if not blocks:
                blocks = await row.read(key, after, max_bytes)
            if not blocks:
                await _check_end(row, key, after)
        except (RangeDamaged, Damaged) as error:
            blocks = await self._look_again(row, key, after, max_bytes, error)
        return blocks

    async def _look_again(
        self, row: RowReader, key: Key, after: int, max_bytes: int, error: Exception
    ) -> list[Block]:
        """Look for runs that hold what was missing elsewhere."""
        try:
            await row.runs.look(row.kept_from, again=True)
            blocks = await self._compacted(row, key, after, max_bytes)
        except Damaged as other:
            raise records_damaged(key, after, other) from other
        if blocks:
            return blocks
        if isinstance(error, RangeDamaged):
            raise error
        raise records_damaged(key, after, error) from error

    async def _compacted(
        self, row: RowReader, key: Key, after: int, max_bytes: int
    ) -> list[Block]:
        held = await row.runs.holding(key, after)
        return await self.held(held[0], after, max_bytes) if held else []

    async def held(self, held: RunPart, after: int, max_bytes: int) -> list[Block]:
        """Return records that a run holds. Raise ``Damaged``."""
        return await self._segments.read(held, after, max_bytes)

    async def before(
        self, row: RowReader, name: str, partition: Partition, time_us: int, start: int
    ) -> int | None:
        """Return the last sequence before the first record committed at or after a time.

        Up to ``start`` they are gone. ``None`` if there is no such record yet.
        """
        key = (name, partition.id)
        try:
            try:
                return await self._before(row, key, time_us, start)
            except Damaged:  # it may have become part of a run
                await row.runs.look(row.kept_from, again=True)
                return await self._before(row, key, time_us, start)
        except Damaged as error:
            text = f"{partition.id!r} cannot be read: {error}"
            raise RangeDamaged(partition.id, text) from error

    async def _before(self, row: RowReader, key: Key, time_us: int, start: int) -> int | None:
        await row.runs.look_behind(row.kept_from)
        async for held in row.runs.since(key, time_us, start):
            before = await self._segments.sequence_before(held, time_us, start)
            if before is not None:
                return before
        return await row.sequence_before(key, time_us, start)


async def _check_end(row: RowReader, key: Key, after: int) -> None:
    """Raise ``Damaged`` if a partition goes on after what seems to be its end."""
    if row.kept_from == 1 and row.sealed_at is None:
        return
    end = (await row.ends()).get(key)
    last = 0 if end is None else end.last
    if after < last:
        raise Damaged(f"records {after + 1:,} to {last:,} are missing")
