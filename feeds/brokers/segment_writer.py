"""Making one segment: its records become Parquet, and an object of the store.

An object of its name that is there already is taken as it is, if it holds the same records:
another broker was quicker, or this one before it was killed.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from io import BytesIO

from changefeed.feeds.brokers.compacted import Segment
from changefeed.feeds.brokers.compaction import GROUP_BYTES, GROUP_RECORDS
from changefeed.feeds.brokers.errors import RowDamaged
from changefeed.feeds.brokers.flush import Gathered
from changefeed.feeds.brokers.names import segment_key
from changefeed.feeds.brokers.parquet import segments_module
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.brokers.work import Work
from changefeed.feeds.eventlog.block_format import BlockDamaged, joined
from changefeed.feeds.eventlog.segment_file import SegmentDamaged, SegmentFile


class SegmentWriter:
    """Raises ``RowDamaged`` where a segment cannot be made, or another thing has its name."""

    def __init__(self, store: ObjectStore, work: Work) -> None:
        self._store = store
        self._work = work

    async def write(self, gathered: Sequence[Gathered], latest_us: int | None) -> Segment:
        """Make a segment of records that follow each other in one partition.

        ``latest_us`` is the latest commit time before them, if there are any.
        """
        assert gathered, "a segment without records"
        first, last = gathered[0], gathered[-1]
        collection, partition = first.key
        key = segment_key(collection, partition, first.first, last.last)
        try:
            data, file = await self._work(lambda: _encoded(gathered))
            if not await self._store.create(key, data):
                found = await self._store.get(key) or b""
                if found != data:
                    file = await self._work(lambda: _same(found, gathered, latest_us))
        except (SegmentDamaged, BlockDamaged) as error:
            raise RowDamaged(
                f"{key} does not hold the records {first.first:,} to {last.last:,} of its "
                f"flushes, or these cannot be read: {error}. If it exists, and no flush is "
                f"damaged, delete it"
            ) from error
        assert (file.first, file.last) == (first.first, last.last), f"{key} has other records"
        return Segment(
            collection=collection,
            partition=partition,
            first=file.first,
            groups=file.groups,
            size=file.size,
            is_text=file.is_text,
            tail_crc=file.tail_crc,
            stored=last.stored,
        )


def _encoded(gathered: Sequence[Gathered]) -> tuple[bytes, SegmentFile]:
    segments = segments_module()
    file = BytesIO()

    def groups() -> Iterator[object]:
        for sections in slices(gathered, GROUP_BYTES, GROUP_RECORDS):
            yield segments.Records(
                first=sections[0].first,
                latest_us=sections[-1].latest_us,
                layout=segments.canonical(joined(x.columns for x in sections)),
            )

    found = segments.write_segment(file, gathered[0].key[1], groups)
    return file.getvalue(), found


def slices(
    gathered: Sequence[Gathered], most_bytes: int, most_records: int = sys.maxsize
) -> Iterator[Sequence[Gathered]]:
    """Cut sections that follow each other: a slice takes no more once it has so much."""
    found: list[Gathered] = []
    size = count = 0
    for one in gathered:
        found.append(one)
        size += one.bytes
        count += one.last - one.first + 1
        if size >= most_bytes or count >= most_records:
            yield found
            found, size, count = [], 0, 0
    if found:
        yield found


def _same(data: bytes, gathered: Sequence[Gathered], latest_us: int | None) -> SegmentFile:
    """Describe a segment that others have written, once it is known to hold the same."""
    segments = segments_module()
    first, last = gathered[0].first, gathered[-1].last
    found: SegmentFile = segments.describe_segment(BytesIO(data), first, latest_us)
    with closing(segments.read_segment(BytesIO(data), found, first)) as slices:
        there = joined(x.layout for x in slices)
    wanted = segments.canonical(joined(x.columns for x in gathered))
    if there != wanted or found.last != last:
        raise SegmentDamaged(first, last, "it holds other records")
    return found
