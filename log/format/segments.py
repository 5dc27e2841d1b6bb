"""Segments: changes of a collection as a file of Parquet, written once and read for good.

One row for each change, zstd, with the columns that pipelines have: ``range``, ``sequence``,
``key``, ``id``, ``operation``, ``body`` (null where there is none), ``previous`` and
``committed_at``. In a row group each range lies together, in the order of ``sequence``; a
large range has row groups of its own, small ones share one.

Bodies may be any bytes. Where all of a segment's are UTF-8 the file has them as strings,
else as bytes: what is read is what was written, either way.

Nothing here knows where the bytes are kept. What is to be known of a file is in ``Segment``,
and is kept elsewhere. This is the one module, with ``arrow_columns``, below pipelines that
needs pyarrow: it is imported where a segment is written or read, and nowhere else.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, RawIOBase
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from changefeed.log.errors import Damaged
from changefeed.log.format.arrow_columns import TIME, Arrays, Bodies, arrays, layout_of
from changefeed.log.format.block_format import Columns, Layout, joined
from changefeed.log.format.pack import Records
from changefeed.log.format.segment_file import Segment

_BATCH: Final = 8192
_DICTIONARIES: Final = ["range", "operation", "key", "id"]
_BOUNDED: Final = ["range", "sequence", "key", "committed_at"]
_DELTAS: Final = {"sequence": "DELTA_BINARY_PACKED", "committed_at": "DELTA_BINARY_PACKED"}


class EncodedSegment(NamedTuple):
    """A file, where its row groups end in it, and whether its bodies are strings."""

    data: bytes
    ends: Sequence[int]
    is_text: bool


def write_segment(groups: Sequence[Sequence[Records]]) -> EncodedSegment:
    """Write the file of some row groups, and read it back.

    Raise ``Damaged`` for records that cannot be written, and if what is read back
    is not what was to be written.
    """
    assert groups, "a segment without records"
    try:
        written = _written(groups, "text")
    except UnicodeError:
        written = _written(groups, "bytes")
    with _noticed(), pq.ParquetFile(BytesIO(written.data), pre_buffer=False) as parquet:
        for number, group in enumerate(groups):
            batches = [*parquet.iter_batches(_BATCH, row_groups=[number], use_threads=False)]
            skip = 0
            for records in group:
                if joined(layouts(batches, skip, records.count)) != records.columns:
                    raise _unlike(records, "it is not what was to be written")
                skip += records.count
    return written


def _written(groups: Sequence[Sequence[Records]], bodies: Bodies) -> EncodedSegment:
    schema, file, ends = _schema(bodies), BytesIO(), list[int]()
    with pq.ParquetWriter(
        file,
        schema,
        version="2.6",
        compression="zstd",
        use_dictionary=_DICTIONARIES,
        column_encoding=_DELTAS,
        write_statistics=_BOUNDED,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for group in groups:
            table = pa.Table.from_batches([_batch(x, schema, bodies) for x in group])
            writer.write_table(table, row_group_size=table.num_rows)
            ends.append(file.tell())
    assert len({0, *ends}) == len(groups) + 1, f"row groups end at {ends}"
    return EncodedSegment(file.getvalue(), ends, bodies == "text")


def _schema(bodies: Bodies) -> pa.Schema:
    users = pa.string() if bodies == "text" else pa.binary()
    return pa.schema(
        [
            pa.field("range", pa.string(), nullable=False),
            pa.field("sequence", pa.int64(), nullable=False),
            pa.field("key", pa.string(), nullable=False),
            pa.field("id", pa.string(), nullable=False),
            pa.field("operation", pa.string(), nullable=False),
            pa.field("body", users),
            pa.field("previous", users),
            pa.field("committed_at", TIME, nullable=False),
        ]
    )


def _batch(records: Records, schema: pa.Schema, bodies: Bodies) -> pa.RecordBatch:
    size = records.count
    columns = Columns(first=records.first, count=size, skip=0, layout=records.columns)
    making: Arrays = {
        **arrays(columns, bodies),
        "range": lambda: pa.repeat(records.key[1], size),
    }
    made = []
    for name in schema.names:
        try:
            made.append(making[name]())
        except pa.ArrowInvalid as error:
            if name in ("body", "previous") and bodies == "text":
                raise UnicodeError("a body is not UTF-8") from error
            raise _unlike(records, str(error)) from error
        except IndexError as error:
            raise _unlike(records, str(error)) from error
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _unlike(records: Records, reason: str) -> Damaged:
    """Clients may lay out anything."""
    where = f"records {records.first:,} to {records.last:,} of {records.key[1]!r}"
    return Damaged(f"{where}: {reason}")


def canonical(layout: Layout) -> Layout:
    """Return the same records as a log lays them out: ids that are the key not kept apart.

    What clients of brokers lay out may be otherwise. Raise ``Damaged``.
    """
    if not layout.id_sizes:
        return layout
    size = len(layout.kinds)
    columns = Columns(first=1, count=size, skip=0, layout=layout)
    try:
        made = {name: make() for name, make in arrays(columns, "bytes").items()}
        found = layout_of(pa.RecordBatch.from_pydict(made))
    except (pa.ArrowInvalid, IndexError) as error:
        raise Damaged(str(error)) from error
    assert len(found.kinds) == size, f"{size} records became {len(found.kinds)}"
    return found


def read_group(
    segment: Segment, tail: bytes, number: int, data: bytes, batch: int = _BATCH
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group, some at a time.

    ``tail`` is what lies behind the row groups, ``data`` the bytes of this one. Raise
    ``Damaged`` before anything is made of bytes that are not those written.
    """
    assert 0 <= number < len(segment.groups), f"{segment.key} has no row group {number}"
    check_tail(segment, tail)
    group, rows = segment.groups[number], 0
    if zlib.crc32(data) != group.crc:
        raise Damaged(f"row group {number} is not what was written")
    source = _Window(data, segment.bounds(number)[0])
    with _noticed():
        metadata = pq.read_metadata(pa.BufferReader(tail))
        with pq.ParquetFile(
            pa.PythonFile(source, mode="r"), metadata=metadata, pre_buffer=False
        ) as parquet:
            for found in parquet.iter_batches(batch, row_groups=[number], use_threads=False):
                rows += found.num_rows
                yield found
    if rows != sum(x.count for x in group.slices):
        raise Damaged(f"row group {number} has {rows:,} changes, and should have others")


def check_tail(segment: Segment, tail: bytes) -> None:
    """Raise ``Damaged`` unless what lies behind the row groups was written there."""
    if zlib.crc32(tail) != segment.tail_crc:
        raise Damaged("its footer is not what was written, or it was cut")


def cut_rows(
    batches: Iterable[pa.RecordBatch], skip: int, count: int
) -> Iterator[pa.RecordBatch]:
    """Yield so many rows of batches that follow each other, behind some others."""
    assert skip >= 0, f"{-skip} rows before the first were asked for"
    for batch in batches:
        begin, end = min(skip, batch.num_rows), min(skip + count, batch.num_rows)
        if begin < end:
            yield batch.slice(begin, end - begin)
        skip, count = max(skip - batch.num_rows, 0), count - (end - begin)


def layouts(batches: Iterable[pa.RecordBatch], skip: int, count: int) -> Iterator[Layout]:
    """Yield the same as a log has it. Raise ``Damaged`` for what no log can have."""
    with _noticed():
        yield from map(layout_of, cut_rows(batches, skip, count))


@contextmanager
def _noticed() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, IndexError) as error:
        raise Damaged(str(error)) from error


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
