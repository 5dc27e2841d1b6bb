"""What a reader remembers of a row, many objects in one step. Pure.

A *window* is so many objects that follow each other, with all of their sections by partition.
Of small objects it has the records themselves, cut once for all partitions; of others it knows
where the columns lie.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import Layout, joined
from changefeed.log.format.flush import FlushHeader, PartitionEnd, end_with
from changefeed.log.format.pack import HEAD_BYTES, Key, Records, Section, cut_columns

_COALESCED_BYTES: Final = 128 * 1024
_OF_SPAN: Final = 400
"""What is in memory of a section takes so many bytes beside its columns."""


class RecordSpan(NamedTuple):
    """Records of a partition that follow each other, and the first object that they lie in.

    ``end`` is how far the partition has come with them. They are one section of that object,
    whose columns begin behind ``head`` bytes, or else ``columns`` of this and some that
    follow.
    """

    number: int
    first: int
    end: PartitionEnd
    bytes: int
    head: int
    section: Section | None
    columns: Layout | None

    @property
    def last(self) -> int:
        return self.end.last

    @property
    def in_memory(self) -> int:
        return _OF_SPAN + (0 if self.columns is None else self.bytes)

    def records(self, columns: Layout) -> Records:
        end = self.end
        return Records(end.key, self.first, end.last, end.latest_us, end.stored, columns)


@dataclass(slots=True)
class Window:
    """Objects of a row, up to ``last``.

    ``damaged`` are those that are not what was written: what lies in them is not known.
    """

    last: int
    sealed_at: int | None = None
    damaged: list[int] = field(default_factory=list)
    size: int = _OF_SPAN
    spans: dict[Key, list[RecordSpan]] = field(default_factory=dict)

    @property
    def sound(self) -> int:
        """The last object before the first that is damaged."""
        return self.damaged[0] - 1 if self.damaged else self.last

    def add(self, header: FlushHeader, head: int, data: bytes) -> None:
        """Take in the next object: its header, the bytes of that, and what was read of it."""
        number = header.number
        assert number == self.last + 1, f"{number} follows on {self.last}"
        self.last = number
        if header.seal:
            self.sealed_at = number
        for x in header.sections:
            columns = _columns(data, head, x) if is_small(data) else None
            section = x if columns is None else None
            end = end_with(x, header.written_us)
            span = RecordSpan(number, x.first, end, x.bytes, head, section, columns)
            self.spans.setdefault(x.key, []).append(span)
            self.size += span.in_memory

    def pass_over(self, number: int) -> None:
        """Go on behind an object that is damaged."""
        assert number == self.last + 1, f"{number} follows on {self.last}"
        self.last = number
        self.damaged.append(number)

    def coalesce(self, after: int) -> None:
        """Make few spans of many small ones, of the objects after a number."""
        for key, spans in self.spans.items():
            if spans[-1].number > after:
                place = bisect_right(spans, after, key=lambda x: x.number)
                more = [*_coalesced(spans[place:])]
                assert (more[0].first, more[-1].last) == (spans[place].first, spans[-1].last)
                self.size += sum(x.in_memory for x in more)
                self.size -= sum(x.in_memory for x in spans[place:])
                self.spans[key] = spans[:place] + more
        assert self.size >= _OF_SPAN, f"a window of {self.size} bytes"

    def spans_after(self, key: Key, after: int) -> Sequence[RecordSpan]:
        """Return what the window has of a partition behind a sequence."""
        spans = self.spans.get(key, [])
        return spans[bisect_right(spans, after, key=lambda x: x.last) :]

    def damaged_behind(self, key: Key, number: int) -> int | None:
        """Return a damaged object, from one on, that may have more of a partition."""
        spans = self.spans.get(key)
        since = max(number, spans[-1].number if spans else 0)
        return next((x for x in self.damaged if x >= since), None)


def is_small(data: bytes) -> bool:
    """Whether the first bytes of an object, as they are read, are all of it."""
    return len(data) < HEAD_BYTES


def _coalesced(spans: Iterable[RecordSpan]) -> Iterator[RecordSpan]:
    """Join columns that are in memory, and follow each other, up to some bytes together."""
    found: list[RecordSpan] = []
    size = 0
    for span in spans:
        follows = bool(found) and span.first == found[-1].last + 1
        if span.columns is None or not follows or size >= _COALESCED_BYTES:
            yield from _as_one(found)
            found, size = [], 0
        if span.columns is None:
            yield span
        else:
            found.append(span)
            size += span.bytes
    yield from _as_one(found)


def _as_one(spans: Sequence[RecordSpan]) -> Iterator[RecordSpan]:
    if spans:
        assert all(x.last + 1 == y.first for x, y in pairwise(spans)), "spans leave a gap"
        columns = joined(x.columns for x in spans if x.columns is not None)
        size = sum(x.bytes for x in spans)
        yield spans[-1]._replace(
            number=spans[0].number, first=spans[0].first, bytes=size, columns=columns
        )


def _columns(data: bytes, head: int, section: Section) -> Layout | None:
    """Cut columns from a whole object; ``None`` if they are damaged: it may be restored."""
    begin = head + section.offset
    try:
        return cut_columns(data[begin : begin + section.bytes], section)
    except Damaged:
        return None
