"""Places in a row before which all can be cut: tables, and the ends of runs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from changefeed.log.catalog.names import compacted_key
from changefeed.log.format.flush import FlushHeader, PartitionEnd
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_runs import RunIndex


class TruncationPoint(NamedTuple):
    """A place in a row: what lies before object ``number``.

    ``written_us`` is of no object before it earlier than it was. ``key`` is of an object that
    was created when all before it had been begun.
    """

    key: str
    number: int
    written_us: int
    ends: Sequence[PartitionEnd]


async def last_point(
    row: RowReader, holds: Callable[[TruncationPoint], bool]
) -> TruncationPoint | None:
    """Return the last point of which something holds that holds of those before it.

    Points are the objects with tables, and the ends of runs where objects are deleted.
    """
    table = await row.last_table(lambda x: holds(_at_table(row, x)))
    if table is not None:
        return _at_table(row, table)
    await row.runs.look_behind()
    run = await row.runs.last_of(lambda x: holds(_at_end(row, x)))
    return None if run is None else _at_end(row, run)


def _at_table(row: RowReader, table: FlushHeader) -> TruncationPoint:
    key = row.key(table.number)
    return TruncationPoint(key, table.number, table.written_us, table.table or ())


def _at_end(row: RowReader, found: RunIndex) -> TruncationPoint:
    run = found.run
    key = compacted_key(row.era, row.broker, run.first)
    return TruncationPoint(key, run.last + 1, run.written_us, run.ends)
