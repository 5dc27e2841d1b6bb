"""Making one run of what lies in objects, partition by partition.

A few partitions at a time, as many as fit into the memory that is allowed: of each object the
slice is read that has them. A partition that has much there gets a segment of its own, or
several where the memory does not hold it, if there is pyarrow; all else lies in the run itself.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from changefeed.feeds.brokers.compacted import Segment, pack
from changefeed.feeds.brokers.compaction import Border, shares
from changefeed.feeds.brokers.errors import RowDamaged
from changefeed.feeds.brokers.flush import Ends, Gathered, Key, PartitionEnd
from changefeed.feeds.brokers.parquet import has_parquet
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.segment_writer import SegmentWriter, slices

LARGE = 1024 * 1024
"""A partition with so many bytes in a run gets a segment of its own."""
_SECTION_BYTES = 1024 * 1024
"""A section of a run takes no more records once it has so many bytes."""


@dataclass(slots=True)
class Made:
    """What a run is made of."""

    segments: list[Segment] = field(default_factory=list)
    packed: list[Gathered] = field(default_factory=list)

    def in_order(self) -> "Made":
        """Return the same in the order of partitions and sequences."""
        return Made(
            sorted(self.segments, key=lambda x: (x.collection, x.partition, x.first)),
            sorted(self.packed, key=lambda x: (x.key, x.first)),
        )


class _Reached(NamedTuple):
    """Up to where records of a partition are in the run."""

    last: int
    latest_us: int | None


def _reached(end: PartitionEnd | None) -> _Reached:
    return (
        _Reached(0, None) if end is None or not end.last else _Reached(end.last, end.latest_us)
    )


class RunMaker:
    """Raises ``RowDamaged`` where an object is missing or damaged: then nothing is named."""

    def __init__(self, writer: SegmentWriter, memory: int) -> None:
        self._writer = writer
        self._memory = memory

    async def make(
        self,
        reader: RowReader,
        first: int,
        before: Ends,
        border: Border,
        starts: Mapping[Key, int],
    ) -> Made:
        """Make what the run of objects ``first`` to the border holds.

        ``starts`` are the sequences up to which partitions are deleted.
        """
        made = Made()
        numbers = range(first, border.last + 1)
        assert numbers, f"a run from {first} on ends at {border.last}"
        for share in shares(before, border.ends, starts, self._memory):
            began = {x: _reached(before.get(x)) for x in share}
            reached = await self._share(reader, numbers, began, made)
            for key in share:
                if reached[key].last != border.ends[key].last:
                    raise RowDamaged(
                        f"objects {first} to {border.last} have {key} up to record "
                        f"{reached[key].last:,}, not to {border.ends[key].last:,}"
                    )
        return made.in_order()

    async def _share(
        self,
        reader: RowReader,
        numbers: range,
        began: Mapping[Key, _Reached],
        made: Made,
    ) -> Mapping[Key, _Reached]:
        """Make what a run holds of some partitions; return how far they reach."""
        reached = {**began}
        gathered: dict[Key, list[Gathered]] = defaultdict(list)
        sizes: dict[Key, int] = defaultdict(int)

        async def write(key: Key) -> None:
            sections, size = gathered.pop(key), sizes.pop(key)
            assert sections[0].first == reached[key].last + 1, (
                f"a segment of {key} from {sections[0].first} on, after {reached[key]}"
            )
            if size >= LARGE and has_parquet():
                made.segments.append(await self._writer.write(sections, reached[key].latest_us))
            else:
                made.packed += [pack(x) for x in slices(sections, _SECTION_BYTES)]
            reached[key] = _Reached(sections[-1].last, sections[-1].latest_us)

        async for sections in reader.gathered(numbers, began.keys()):
            for one in sections:
                key = one.key
                last = gathered[key][-1].last if gathered[key] else reached[key].last
                if one.first != last + 1:
                    raise RowDamaged(f"{key} does not go on after {last:,}")
                gathered[key].append(one)
                sizes[key] += one.bytes
                if sizes[key] >= self._memory:
                    await write(key)
        for key in [*gathered]:
            await write(key)
        assert not gathered, f"records of {gathered.keys()} are in no run"
        return reached
