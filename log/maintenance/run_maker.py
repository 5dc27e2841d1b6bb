"""Making one run of what lies in objects, partition by partition.

A few partitions at a time, as many as fit into the memory that is allowed: of each object the
slice is read that has them. A collection that has much there gets a segment, or several where
the memory does not hold it, if there is pyarrow; all else lies in the run itself.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from changefeed.log.catalog.names import segments_prefix
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import Ends
from changefeed.log.format.pack import Key, Records
from changefeed.log.format.parquet import has_parquet
from changefeed.log.format.runs import as_one
from changefeed.log.format.segment_file import Segment
from changefeed.log.maintenance.compaction import RunEnd, last_in, shares
from changefeed.log.maintenance.segment_writer import slices, write_segment
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.stores.store import ObjectStore

LARGE = 1024 * 1024
"""A collection with so many bytes in a run gets segments."""
_SECTION_BYTES = 1024 * 1024
"""A section of a run takes no more records once it has so many bytes."""


@dataclass(slots=True)
class RunContents:
    """What a run is made of."""

    segments: list[Segment] = field(default_factory=list)
    packed: list[Records] = field(default_factory=list)

    @property
    def records(self) -> int:
        in_segments = sum(x.records for x in self.segments)
        return in_segments + sum(x.count for x in self.packed)


class RunMaker:
    """Raises ``Damaged`` where an object is missing or damaged: then nothing is named."""

    def __init__(self, store: ObjectStore, memory: int) -> None:
        self._write = partial(write_segment, store)
        self._memory = memory

    async def make(
        self,
        reader: RowReader,
        first: int,
        before: Ends,
        end: RunEnd,
        starts: Mapping[Key, int],
    ) -> RunContents:
        """Make what the run of objects ``first`` to the end holds.

        ``starts`` are the sequences up to which partitions are deleted.
        """
        made, large = RunContents(), _large(before, end.ends)
        if large and not await asyncio.to_thread(has_parquet):  # the import takes a while
            large = set()
        numbers = range(first, end.last + 1)
        assert numbers, f"a run from {first} on ends at {end.last}"
        for share in shares(before, end.ends, starts, self._memory):
            reached = {x: last_in(before, x) for x in share}
            async for records in self._records_of(reader, numbers, reached):
                for name, sections in groupby(records, key=lambda x: x.key[0]):
                    if name in large:
                        prefix = segments_prefix(name, reader.era, reader.broker, first)
                        segment = await self._write(prefix, [*sections])
                        assert segment.key.startswith(prefix), "it is known as this run's"
                        made.segments.append(segment)
                    else:
                        made.packed += _packed([*sections])
            for key, last in reached.items():
                if last != end.ends[key].last:
                    raise Damaged(
                        f"objects {first} to {end.last} have {key} up to record "
                        f"{last:,}, not to {end.ends[key].last:,}"
                    )
        made.packed.sort(key=lambda x: (x.key, x.first))
        return made

    async def _records_of(
        self, reader: RowReader, numbers: range, reached: dict[Key, int]
    ) -> AsyncIterator[Sequence[Records]]:
        """Yield what objects have of some partitions, in their order, as much as memory holds.

        ``reached`` says up to where partitions were read, and says so afterwards.
        """
        found: dict[Key, list[Records]] = defaultdict(list)
        size = 0
        async for sections in reader.records_in(numbers, reached.keys()):
            for one in sections:
                if one.first != reached[one.key] + 1:
                    raise Damaged(f"{one.key} does not go on after {reached[one.key]:,}")
                reached[one.key] = one.last
                found[one.key].append(one)
                size += one.bytes
            if size >= self._memory:
                yield _in_order(found)
                found.clear()
                size = 0
        if found:
            yield _in_order(found)


def _in_order(found: Mapping[Key, Sequence[Records]]) -> Sequence[Records]:
    return [x for key in sorted(found) for x in found[key]]


def _packed(sections: Sequence[Records]) -> Iterator[Records]:
    for _, of_one in groupby(sections, key=lambda x: x.key):
        yield from map(as_one, slices([*of_one], _SECTION_BYTES))


def _large(before: Ends, after: Ends) -> set[str]:
    """Return the collections that have much between two objects of a row."""
    sizes = Counter[str]()
    for (name, _), end in after.items():
        sizes[name] += end.stored
    for (name, _), end in before.items():
        sizes[name] -= end.stored
    return {name for name, size in sizes.items() if size >= LARGE}
