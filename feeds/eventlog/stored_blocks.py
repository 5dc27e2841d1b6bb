"""Blocks as readers get them from the files, checked before anything is made of them.

Every statement selects what is checked: the numbers of a row, its checksums, its columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from changefeed.feeds.eventlog.block_format import COLUMNS, BlockDamaged, Layout, behind
from changefeed.feeds.eventlog.catalog import Catalog, Partition
from changefeed.feeds.eventlog.checksums import is_column, is_sealed, is_whole
from changefeed.feeds.eventlog.damage import damaged, damaged_end
from changefeed.feeds.eventlog.records import BLOCK_RECORDS

BLOCK: Final = f"partition, first, last, latest_us, stored, checks, {COLUMNS}"
"""What a statement selects of a block, for ``StoredBlock``."""

_TIMES: Final = Layout._fields.index("times")


class StoredBlock(NamedTuple):
    """A row of blocks, by the names in ``BLOCK``."""

    partition: int
    first: int
    last: int
    latest_us: int
    stored: int
    checks: bytes
    columns: tuple[bytes, ...]

    @property
    def is_whole(self) -> bool:
        return is_whole(self.checks, self.columns, *self[:5])


def stored_block(row: Sequence[Any]) -> StoredBlock:
    partition, first, last, latest_us, stored, checks, *columns = row
    return StoredBlock(partition, first, last, latest_us, stored, checks, tuple(columns))


def whole_blocks(
    rows: Iterable[Sequence[Any]],
    catalog: Catalog,
    partition: Partition,
    wanted: int,
) -> Iterator[StoredBlock]:
    """Yield blocks that follow each other, from the one that holds the sequence ``wanted``.

    Raise ``RangeDamaged`` at the first that is not what was written, or is missing.
    """
    for row in rows:
        block = stored_block(row)
        if not block.is_whole:
            raise damaged(catalog, partition.id, wanted, _last_of(block, wanted))
        if not block.first <= wanted <= block.last:
            raise damaged(catalog, partition.id, wanted, max(wanted, block.first - 1))
        yield block
        wanted = block.last + 1


def _last_of(block: StoredBlock, wanted: int) -> int:
    """Return the last sequence of a damaged block, if that can be believed."""
    last = block.last
    return last if type(last) is int and wanted <= last < wanted + BLOCK_RECORDS else wanted


SINCE: Final = """
SELECT partition, first, last, latest_us, stored, checks, times FROM blocks
WHERE partition = ? AND latest_us >= ? ORDER BY latest_us, first LIMIT 1
"""
"""The block that holds the first change committed at or after a time."""


def sequence_since(
    row: Sequence[Any],
    catalog: Catalog,
    partition: Partition,
    time_us: int,
) -> int:
    """Return the last sequence before a time, by the row that ``SINCE`` selects."""
    *numbers, checks, times = row
    first, last = numbers[1], numbers[2]
    if not (is_sealed(checks, *numbers) and is_column(checks, _TIMES, times)):
        raise damaged(catalog, partition.id, first, last)
    try:
        return int(first) - 1 + behind(times, time_us)
    except BlockDamaged as error:
        raise damaged(catalog, partition.id, first, last) from error


END: Final = (
    "SELECT partition, last, latest_us, stored, first, size, checks, closed FROM partitions"
)


class End(NamedTuple):
    """The last sequence of a range, and whether it is the last for good."""

    last: int
    closed: bool


def end_of(row: Sequence[Any], catalog: Catalog) -> End:
    """Return the end of a partition, by a row of ``END``; raise ``RangeDamaged``."""
    end = sound_end(row)
    if end is None:
        raise damaged_end(catalog, row[0])
    return end


def sound_end(row: Sequence[Any]) -> End | None:
    """Return what a row of ``END`` says, if it is what was written."""
    *numbers, checks, closed = row
    if not is_sealed(checks, *numbers):
        return None
    return End(last=numbers[1], closed=bool(closed))
