"""What is known of a segment beside its file of Parquet. Frozen.

The CRC-32 of each of its row groups and of what lies behind them bind a file to its place:
no other file is taken for it, and nothing is made of bytes that are not those that were
written. A row group is what is checked, and damaged, at once: some thousand changes.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from changefeed.feeds.feed import RangeId


class Slice(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The rows of one range in a row group: ``count`` sequences from ``first`` on.

    ``latest_us`` is the latest commit time of the range up to their end.
    """

    range_id: RangeId
    first: int
    count: int
    latest_us: int

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class RowGroup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A row group: where it ends in the file, the CRC-32 of its bytes, and its rows."""

    end: int
    crc: int
    slices: tuple[Slice, ...]


class Segment(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One file of Parquet, with records of one collection.

    ``is_text``: bodies and images before are UTF-8, and the file has them as strings; else as
    bytes. ``tail_crc`` is the CRC-32 of what lies behind the row groups.
    """

    collection: str
    key: str
    groups: tuple[RowGroup, ...]
    size: int
    is_text: bool
    tail_crc: int

    @property
    def records(self) -> int:
        return sum(y.count for x in self.groups for y in x.slices)

    @property
    def tail(self) -> tuple[int, int]:
        """Where what lies behind the row groups begins and ends in the file."""
        return self.groups[-1].end, self.size

    def bounds(self, group: int) -> tuple[int, int]:
        """Return where a row group begins and ends in the file."""
        assert 0 <= group < len(self.groups), f"{self.key} has no group {group}"
        return self.groups[group - 1].end if group else 0, self.groups[group].end

    def is_sound(self) -> bool:
        """Whether what it says can be."""
        ends = [0, *(x.end for x in self.groups), self.size]
        counts = [y.count for x in self.groups for y in x.slices]
        rising = all(a < b for a, b in pairwise(ends))
        return (
            bool(counts) and min(counts) > 0 and rising and all(x.slices for x in self.groups)
        )


class SegmentSlice(NamedTuple):
    """Where records that follow each other lie in a file: rows of one of its row groups.

    ``skip`` rows of other ranges lie before them.
    """

    segment: Segment
    group: int
    skip: int
    slice: Slice

    @property
    def key(self) -> str:
        return self.segment.key

    @property
    def first(self) -> int:
        return self.slice.first

    @property
    def last(self) -> int:
        return self.slice.last

    @property
    def latest_us(self) -> int:
        return self.slice.latest_us


def slices_in(segment: Segment) -> Iterator[SegmentSlice]:
    """Yield all that a segment holds, range by range in each row group."""
    assert segment.is_sound(), f"{segment.key} was not checked: {segment}"
    for number, group in enumerate(segment.groups):
        skips = accumulate((x.count for x in group.slices), initial=0)
        for skip, found in zip(skips, group.slices, strict=False):
            yield SegmentSlice(segment, number, skip, found)
