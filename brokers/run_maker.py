"""Making the segments of one run: what lies in its objects, partition by partition.

A few partitions at a time, as many as fit into the memory that is allowed: of each object the
piece is read that has them. What a partition has beyond that becomes several segments.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from changefeed.brokers.compaction import Border, shares
from changefeed.brokers.segment_writer import Gathered, SegmentWriter
from changefeed.feeds.brokers.compacted import Segment
from changefeed.feeds.brokers.errors import RowDamaged
from changefeed.feeds.brokers.flush import Ends, Key, PartitionEnd, Section
from changefeed.feeds.brokers.row_reader import RowReader

_AHEAD = 4


class _Reached(NamedTuple):
    """Up to where records of a partition are in segments."""

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
    ) -> Sequence[Segment]:
        """Make the segments of objects ``first`` to the border, in the order of partitions.

        ``starts`` are the sequences up to which partitions are deleted.
        """
        made: list[Segment] = []
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
        return sorted(made, key=lambda x: (x.collection, x.partition, x.first))

    async def _share(
        self,
        reader: RowReader,
        numbers: range,
        began: Mapping[Key, _Reached],
        made: list[Segment],
    ) -> Mapping[Key, _Reached]:
        """Make the segments of some partitions; return how far they reach."""
        reached = {**began}
        gathered: dict[Key, list[Gathered]] = defaultdict(list)
        sizes: dict[Key, int] = defaultdict(int)

        async def write(key: Key) -> None:
            sections = gathered.pop(key)
            del sizes[key]
            assert sections[0].section.first == reached[key].last + 1, (
                f"a segment of {key} from {sections[0].section.first} on, after {reached[key]}"
            )
            made.append(await self._writer.write(sections, reached[key].latest_us))
            reached[key] = _Reached(sections[-1].section.last, sections[-1].section.latest_us)

        async for sections in _read(reader, numbers, began.keys()):
            for one in sections:
                key = (one.section.collection, one.section.partition)
                last = gathered[key][-1].section.last if gathered[key] else reached[key].last
                if one.section.first != last + 1:
                    raise RowDamaged(f"{key} does not go on after {last:,}")
                gathered[key].append(one)
                sizes[key] += one.section.bytes
                if sizes[key] >= self._memory:
                    await write(key)
        for key in [*gathered]:
            await write(key)
        assert not gathered, f"records of {gathered.keys()} are in no segment"
        return reached


async def _read(
    reader: RowReader, numbers: range, share: AbstractSet[Key]
) -> AsyncIterator[Sequence[Gathered]]:
    """Yield what objects have of some partitions, in order, a few read ahead."""
    for begin in range(0, len(numbers), _AHEAD):
        some = numbers[begin : begin + _AHEAD]
        for found in await asyncio.gather(*(_sections(reader, x, share) for x in some)):
            yield found


async def _sections(
    reader: RowReader, number: int, share: AbstractSet[Key]
) -> Sequence[Gathered]:
    header = await reader.there(number)
    wanted: list[Section] = [x for x in header.sections if (x.collection, x.partition) in share]
    columns = await reader.columns_of(number, wanted)
    return [Gathered(x, y) for x, y in zip(wanted, columns, strict=True)]
