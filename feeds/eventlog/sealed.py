"""Reading the part of a range that is in segments.

What is sealed is the beginning of a range: where a change is in no block, a segment has it.
Blocks become a segment in one transaction, so a reader that finds a change in neither asks the
segments once more before it is called damaged. Segments never change and never go, so one
that was found is good for as long as the log is open.
"""

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from changefeed.feeds.eventlog.block_format import BlockDamaged
from changefeed.feeds.eventlog.catalog import Catalog, Partition
from changefeed.feeds.eventlog.damage import damaged
from changefeed.feeds.eventlog.database import typed
from changefeed.feeds.eventlog.segment_rows import (
    Segment,
    SegmentDamaged,
    refuse_without_pyarrow,
    segment_path,
    segment_query,
    segment_since_query,
)

if TYPE_CHECKING:
    from changefeed.feeds.eventlog.bulk import Columns

_LASTS = "SELECT partition, max(last) FROM segments GROUP BY partition"


def sealed_with(
    catalog: Catalog, records: sqlite3.Connection, partition: Partition, sequence: int
) -> Segment | None:
    """Return the segment that holds a sequence, if one does. Raise ``RangeDamaged``."""
    rows = records.execute(*segment_query(partition.number, sequence)).fetchall()
    return segment_of(catalog, partition, rows, sequence)


def sealed_lasts(records: sqlite3.Connection) -> Sequence[tuple[int, int]]:
    """Return the partitions that have segments, each with the last sequence in them."""
    return typed(records.execute(_LASTS), tuple[int, int])


def sealed_since(
    catalog: Catalog, records: sqlite3.Connection, partition: Partition, time_us: int
) -> Segment | None:
    """Return the first segment with a change committed at or after a time, if one has."""
    rows = records.execute(*segment_since_query(partition.number, time_us)).fetchall()
    return segment_of(catalog, partition, rows)


def segment_of(
    catalog: Catalog,
    partition: Partition,
    rows: Sequence[Sequence[Any]],
    sequence: int | None = None,
) -> Segment | None:
    """Return the segment in the row that was found, if it holds a sequence."""
    if not rows:
        return None
    try:
        found = Segment.of(rows[0])
    except SegmentDamaged as error:
        wanted = error.first if sequence is None else sequence
        raise damaged(catalog, partition.id, wanted, max(wanted, error.last)) from error
    if sequence is not None and sequence > found.file.last:
        return None
    return found


def read_sealed(
    catalog: Catalog, segment: Segment, wanted: int, batch: int = 8192
) -> "Generator[Columns, None, None]":
    """Yield what is in a segment from one sequence on, about ``batch`` changes at a time.

    Raise ``RangeDamaged``.
    """
    segments = _segments(catalog)
    with _advised(catalog, segment, wanted), _file(segments, catalog, segment) as file:
        for columns in segments.read_segment(file, segment.file, wanted, batch):
            assert columns.first == wanted, f"{columns.first} was read, and {wanted} wanted"
            wanted = columns.first + columns.count
            yield columns


def sequence_in_segment(catalog: Catalog, segment: Segment, time_us: int) -> int:
    """Return the last sequence before the first change committed at or after a time."""
    segments = _segments(catalog)
    with (
        _advised(catalog, segment, segment.file.first),
        _file(segments, catalog, segment) as file,
    ):
        found = int(segments.sequence_before(file, segment.file, time_us))
    assert segment.file.first - 1 <= found < segment.file.last, (
        f"the change before {time_us} is {found}, which is not in {segment.file.name()}"
    )
    return found


def check_file(catalog: Catalog, segment: Segment) -> None:
    """Raise ``RangeDamaged`` unless the file of a segment is there, and of the right size."""
    segments = _segments(catalog)
    with (
        _advised(catalog, segment, segment.file.first),
        _file(segments, catalog, segment) as file,
    ):
        segments.check_segment(file, segment.file)


def _segments(catalog: Catalog) -> ModuleType:
    try:
        from changefeed.feeds.eventlog import segments  # noqa: PLC0415 - it needs pyarrow
    except ImportError as error:
        raise refuse_without_pyarrow(error, catalog.home) from error
    return segments


def _file(segments: ModuleType, catalog: Catalog, segment: Segment) -> Any:
    range_id = catalog.by_number[segment.partition].id
    path = segment_path(catalog.home, range_id, segment.file)
    return segments.opened_segment(path, segment.file)


@contextmanager
def _advised(catalog: Catalog, segment: Segment, wanted: int) -> Iterator[None]:
    try:
        yield
    except SegmentDamaged as error:
        range_id = catalog.by_number[segment.partition].id
        first = max(wanted, error.first)
        raise damaged(catalog, range_id, first, max(first, error.last)) from error
    except BlockDamaged as error:
        range_id = catalog.by_number[segment.partition].id
        raise damaged(catalog, range_id, wanted, segment.file.last) from error
