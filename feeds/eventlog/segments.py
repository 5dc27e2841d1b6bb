"""Segments: changes of one range as a file of Parquet, written once and read for good.

One row for each change, zstd, with the columns that pipelines have: ``range``, ``sequence``,
``key``, ``id``, ``operation``, ``body`` (null where there is none), ``previous`` and
``committed_at``. Rows lie in the order of ``sequence``, and row groups have its bounds, so
a reader of Parquet finds a slice without reading the rest.

Bodies may be any bytes. Where all of a segment's are UTF-8 the file has them as strings,
else as bytes: what is read is what was written, either way.

Nothing here knows where the bytes are kept: a file will do, or an object of a store. What is
to be known of a file is in ``SegmentFile``, and is kept elsewhere. This is the one module,
with ``arrow_columns``, below pipelines that needs pyarrow: it is imported where a segment is
written or read, and nowhere else.
"""

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from changefeed.feeds.eventlog.arrow_columns import TIME, Arrays, Bodies, arrays, layout_of
from changefeed.feeds.eventlog.block_format import BlockDamaged, Columns, Layout, joined
from changefeed.feeds.eventlog.segment_file import Group, SegmentDamaged, SegmentFile
from changefeed.feeds.feed import RangeId

_CHUNK: Final = 1024 * 1024
_BATCH: Final = 8192
_DICTIONARIES: Final = ["range", "operation", "key", "id"]
_BOUNDED: Final = ["range", "sequence", "key", "committed_at"]
_DELTAS: Final = {"sequence": "DELTA_BINARY_PACKED", "committed_at": "DELTA_BINARY_PACKED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records that follow each other, for one row group. ``latest_us`` is the latest commit
    time in the range up to their end.
    """

    first: int
    latest_us: int
    layout: Layout


Groups = Generator[Records, None, None]


class _NotText(Exception):
    """A body is no UTF-8."""


def write_segment(
    file: BinaryIO, range_id: RangeId, groups: Callable[[], Groups]
) -> SegmentFile:
    """Write a segment, read it back, and return what it holds.

    ``file`` is empty, and can be read. ``groups`` is called again if bodies turn out to be no
    text. Raise ``SegmentDamaged`` for records that cannot be written, and if what is read back
    is not what was to be written.
    """
    try:
        with closing(groups()) as given:
            return _written(file, range_id, given, "text")
    except _NotText:
        file.seek(0)
        file.truncate()
        with closing(groups()) as given:
            return _written(file, range_id, given, "bytes")


def _written(
    file: BinaryIO, range_id: RangeId, groups: Iterable[Records], bodies: Bodies
) -> SegmentFile:
    schema = _schema(bodies)
    found: list[tuple[Records, int]] = []
    sums: list[Sequence[int]] = []
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
        for records in groups:
            table = pa.Table.from_batches([_batch(range_id, records, schema, bodies)])
            writer.write_table(table, row_group_size=table.num_rows)
            found.append((records, file.tell()))
            sums.append([*map(zlib.crc32, records.layout)])
    file.flush()
    written = _described(file, found, is_text=bodies == "text")
    with _opened(file, written) as parquet:
        for n, wanted in enumerate(sums):
            slices = [x.layout for x in _group(file, parquet, written, n)]
            if [*map(zlib.crc32, joined(slices))] != wanted:
                first, last = written.bounds(n)
                raise SegmentDamaged(first, last, "it is not what was to be written")
    return written


def _described(
    file: BinaryIO, found: Sequence[tuple[Records, int]], *, is_text: bool
) -> SegmentFile:
    groups: list[Group] = []
    begin = 0
    for records, end in found:
        last = records.first + len(records.layout.kinds) - 1
        assert not groups or records.first == groups[-1].last + 1, (
            f"the group from {records.first} on does not follow that up to {groups[-1].last}"
        )
        assert begin < end, f"the group from {records.first} on ends at {end}, where it begins"
        crc = _crc(file, begin, end)
        groups.append(Group(last, records.latest_us, end, crc))
        begin = end
    size = file.seek(0, 2)
    assert begin < size, f"no footer lies behind the row groups, which end at {begin}"
    return SegmentFile(
        first=found[0][0].first,
        groups=tuple(groups),
        size=size,
        is_text=is_text,
        tail_crc=_crc(file, begin, size),
    )


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


def _batch(
    range_id: RangeId, records: Records, schema: pa.Schema, bodies: Bodies
) -> pa.RecordBatch:
    layout, size = records.layout, len(records.layout.kinds)
    columns = Columns(first=records.first, count=size, skip=0, layout=layout)
    making: Arrays = {
        **arrays(columns, bodies),
        "range": lambda: pa.repeat(range_id, size),
    }
    made = []
    for name in schema.names:
        try:
            made.append(making[name]())
        except pa.ArrowInvalid as error:
            if name in ("body", "previous") and bodies == "text":
                raise _NotText from error
            raise _not_laid_out(records, error) from error
        except IndexError as error:
            raise _not_laid_out(records, error) from error
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _not_laid_out(records: Records, error: Exception) -> SegmentDamaged:
    """Clients may lay out anything."""
    return SegmentDamaged(
        records.first, records.first + len(records.layout.kinds) - 1, str(error)
    )


def canonical(layout: Layout) -> Layout:
    """Return the same records as a log lays them out: ids that are the key not kept apart.

    What clients of brokers lay out may be otherwise. Raise ``BlockDamaged``.
    """
    if not layout.id_sizes:
        return layout
    size = len(layout.kinds)
    columns = Columns(first=1, count=size, skip=0, layout=layout)
    try:
        made = {name: make() for name, make in arrays(columns, "bytes").items()}
        found = layout_of(pa.RecordBatch.from_pydict(made))
    except (pa.ArrowInvalid, IndexError) as error:
        raise BlockDamaged(str(error)) from error
    assert len(found.kinds) == size, f"{size} records became {len(found.kinds)}"
    return found


def describe_segment(file: BinaryIO, first: int, latest_us: int | None) -> SegmentFile:
    """Return what the file of a segment holds that was written before.

    ``latest_us`` is the latest commit time before it in its range, if there is any. The
    records are taken as they are. Raise ``SegmentDamaged`` for what is no segment.
    """
    groups: list[Group] = []
    begin, last = 0, first - 1
    with _noticed(first, first), closing(pq.ParquetFile(file, pre_buffer=False)) as parquet:
        is_text = parquet.schema_arrow.field("body").type == pa.string()
        for number in range(parquet.num_row_groups):
            found = parquet.metadata.row_group(number)
            ends = [_chunk_end(found.column(n)) for n in range(found.num_columns)]
            table = parquet.read_row_group(number, ["committed_at"], use_threads=False)
            latest = pc.max(table.column(0).cast(pa.int64())).as_py()
            latest_us = latest if latest_us is None else max(latest, latest_us)
            last += found.num_rows
            groups.append(Group(last, latest_us, max(ends), _crc(file, begin, max(ends))))
            begin = max(ends)
    if not groups:
        raise SegmentDamaged(first, first, "it has no changes")
    size = file.seek(0, 2)
    return SegmentFile(
        first=first,
        groups=tuple(groups),
        size=size,
        is_text=is_text,
        tail_crc=_crc(file, begin, size),
    )


def _chunk_end(column: pq.ColumnChunkMetaData) -> int:
    begin = column.dictionary_page_offset
    if begin is None:
        begin = column.data_page_offset
    return int(begin + column.total_compressed_size)


def read_segment(
    file: BinaryIO, found: SegmentFile, wanted: int, batch: int = _BATCH
) -> Iterator[Columns]:
    """Yield the changes of a segment from one sequence on, as a log has them in blocks.

    ``batch`` is how many there are in one slice.

    Raise ``SegmentDamaged`` before anything is made of bytes that are not those written.
    """
    with _opened(file, found) as parquet:
        for n in range(found.group_of(wanted), len(found.groups)):
            for x in _group(file, parquet, found, n, batch):
                last = x.first + x.count - 1
                if last < wanted:
                    continue
                skip = max(0, wanted - x.first)
                assert skip < x.count, f"{wanted} is behind {x.first} to {last}"
                yield Columns(
                    first=x.first + skip,
                    count=x.count - skip,
                    skip=skip,
                    layout=x.layout,
                )


def _check_file(file: BinaryIO, found: SegmentFile) -> None:
    """Raise ``SegmentDamaged`` unless the file has the size and the footer it should have.

    Row groups are checked when they are read.
    """
    begin = found.groups[-1].end
    if file.seek(0, 2) != found.size or _crc(file, begin, found.size) != found.tail_crc:
        raise SegmentDamaged(found.first, found.last, "its file is another, or was cut")


@contextmanager
def _opened(file: BinaryIO, found: SegmentFile) -> Iterator[pq.ParquetFile]:
    _check_file(file, found)
    with _noticed(found.first, found.last):
        parquet = pq.ParquetFile(file, pre_buffer=False)
    try:
        yield parquet
    finally:
        parquet.close()


def _group(
    file: BinaryIO,
    parquet: pq.ParquetFile,
    found: SegmentFile,
    number: int,
    size: int = _BATCH,
) -> Iterator[Columns]:
    """Yield a row group in slices, once its bytes are known to be those written."""
    first, last = found.bounds(number)
    begin = found.groups[number - 1].end if number else 0
    if _crc(file, begin, found.groups[number].end) != found.groups[number].crc:
        raise SegmentDamaged(first, last, "its bytes are not those that were written")
    with _noticed(first, last):
        for batch in parquet.iter_batches(size, row_groups=[number], use_threads=False):
            layout, count = layout_of(batch), batch.num_rows
            yield Columns(first=first, count=count, skip=0, layout=layout)
            first += count
    if first != last + 1:
        raise SegmentDamaged(first, last, "changes are missing in it")


@contextmanager
def _noticed(first: int, last: int) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, IndexError) as error:
        raise SegmentDamaged(first, last, str(error)) from error


def _crc(file: BinaryIO, begin: int, end: int) -> int:
    crc = 0
    file.seek(begin)
    while begin < end:
        chunk = file.read(min(_CHUNK, end - begin))
        if not chunk:
            return -1  # it was cut: no checksum is that
        crc = zlib.crc32(chunk, crc)
        begin += len(chunk)
    return crc
