"""Segments of a cluster, read from its store as Arrow: a row group at a time.

A segment is Parquet, with the columns that changes have. Its footer is read first, and then
each row group by one request. A segment is taken for what its name says only if its footer
says the same: the range, and the sequences of each row group. Parquet's own checksums of
pages show what was changed in between.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from changefeed.feeds.brokers.stored_collection import StoredSegment
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId

if TYPE_CHECKING:
    from concurrent.futures import Future

Fetch = Callable[[str, int, int], "Future[bytes | None]"]
"""Begins to read bytes of an object by its key, without the last number given."""

_TAIL: Final = 64 * 1024
_END: Final = struct.Struct("<I4s")
_MAGIC: Final = b"PAR1"
_ROWS: Final = 32_768


class SegmentGone(Exception):
    """The object of a segment is not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Records ``first`` to ``last``, at some bytes of the object. ``latest_us`` is the
    latest commit time among them.
    """

    number: int
    first: int
    last: int
    begin: int
    end: int
    latest_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFooter:
    """``is_text``: bodies and images before are strings, and not bytes."""

    metadata: Any
    groups: Sequence[RowGroup]

    @property
    def is_text(self) -> bool:
        schema = self.metadata.schema.to_arrow_schema()
        return all(schema.field(x).type == pa.string() for x in ("body", "previous"))


def read_footer(name: RangeId, segment: StoredSegment, fetch: Fetch) -> SegmentFooter:
    """Read what a segment holds. Raise ``SegmentGone``, and ``RangeDamaged`` if it is not
    what its name says.
    """
    begin = max(0, segment.size - _TAIL)
    tail = _given(fetch(segment.key, begin, segment.size))
    with _noticed(name, segment):
        size, magic = _END.unpack(tail[-_END.size :])
        if magic != _MAGIC or len(tail) != segment.size - begin:
            raise pa.ArrowInvalid("it was cut, or is no Parquet")
        whole = size + _END.size
        if whole > len(tail):
            tail = _given(fetch(segment.key, segment.size - whole, segment.size))
        metadata = pq.read_metadata(pa.BufferReader(tail))
        groups = list(_groups(metadata, name, segment))
        if not groups or groups[-1].last != segment.bounds.last:
            raise pa.ArrowInvalid("it does not have the records that its name says")
    return SegmentFooter(metadata=metadata, groups=groups)


def _groups(metadata: Any, name: RangeId, segment: StoredSegment) -> Iterator[RowGroup]:
    first = segment.bounds.first
    for number in range(metadata.num_row_groups):
        found = metadata.row_group(number)
        columns = [found.column(n) for n in range(found.num_columns)]
        by_name = {x.path_in_schema: x.statistics for x in columns}
        ranges, sequences = by_name["range"], by_name["sequence"]
        last = first + found.num_rows - 1
        held = (ranges.min, ranges.max, sequences.min, sequences.max)
        if held != (name, name, first, last):
            raise pa.ArrowInvalid(f"it holds other records, {held}")
        starts = [x.dictionary_page_offset or x.data_page_offset for x in columns]
        ends = [b + x.total_compressed_size for b, x in zip(starts, columns, strict=True)]
        latest = by_name["committed_at"].max_raw
        yield RowGroup(
            number=number,
            first=first,
            last=last,
            begin=min(starts),
            end=max(ends),
            latest_us=int(latest),
        )
        first = last + 1


def read_segment(
    name: RangeId, segment: StoredSegment, after: int, end: int, fetch: Fetch
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a segment with ``after < sequence <= end``, in order.

    Each row group is on its way while the one before is read.
    """
    footer = read_footer(name, segment, fetch)
    wanted = [x for x in footer.groups if x.last > after and x.first <= end]
    asked = [fetch(segment.key, wanted[0].begin, wanted[0].end)]
    for n, group in enumerate(wanted):
        data = _given(asked.pop())
        if n + 1 < len(wanted):
            following = wanted[n + 1]
            asked.append(fetch(segment.key, following.begin, following.end))
        with _noticed(name, segment):
            yield from _rows(footer, group, data, after, end)


def _rows(
    footer: SegmentFooter, group: RowGroup, data: bytes, after: int, end: int
) -> Iterator[pa.RecordBatch]:
    source = pa.PythonFile(_Window(data, group.begin), mode="r")
    first = group.first
    with pq.ParquetFile(
        source, metadata=footer.metadata, page_checksum_verification=True, pre_buffer=False
    ) as parquet:
        for batch in parquet.iter_batches(_ROWS, [group.number], use_threads=False):
            skip = max(0, after + 1 - first)
            count = min(batch.num_rows, end + 1 - first) - skip
            first += batch.num_rows
            if count > 0:
                yield batch.slice(skip, count)
    if first != group.last + 1:
        raise pa.ArrowInvalid("changes are missing in it")


def _given(asked: "Future[bytes | None]") -> bytes:
    data = asked.result()
    if data is None:
        raise SegmentGone
    return data


@contextmanager
def _noticed(name: RangeId, segment: StoredSegment) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, AttributeError, struct.error) as error:
        raise RangeDamaged(
            name,
            f"records of range {name!r} cannot be read: {segment.key} is not what was written "
            f"({error}). Restore the object from a copy of the store; the other ranges go on",
        ) from error


class _Window(RawIOBase):
    """Bytes of a file from somewhere on, at the places that they have in it."""

    def __init__(self, data: bytes, begin: int) -> None:
        super().__init__()
        self._data = memoryview(data)
        self._begin = begin
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        size = self._begin + len(self._data)
        self._at = offset + (0, self._at, size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        begin = self._at - self._begin
        if begin < 0:
            raise OSError("what lies before was not read")
        found = bytes(self._data[begin:] if size < 0 else self._data[begin : begin + size])
        self._at += len(found)
        return found
