"""Blocks as readers get them from the files, checked before anything is made of them.

Every statement selects what is checked: the numbers of a row, its checksums, its columns.
In files of format 2 there are no checksums, nor in blocks that were written before a log
was upgraded: these are taken as they are, and no others.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from changefeed.feeds.eventlog.block_format import COLUMNS, BlockDamaged, Layout, behind
from changefeed.feeds.eventlog.catalog import Catalog, Partition, RecordsFormat
from changefeed.feeds.eventlog.checksums import (
    are_bytes,
    are_numbers,
    is_column,
    is_sealed,
    is_whole,
)
from changefeed.feeds.eventlog.damage import damaged, damaged_end
from changefeed.feeds.eventlog.records import BLOCK_RECORDS
from changefeed.feeds.eventlog.schema import CHECKS

BLOCK: Final = f"partition, first, last, latest_us, stored, {{checks}}, {COLUMNS}"
"""What a statement selects of a block, for ``StoredBlock``."""

_TIMES: Final = Layout._fields.index("times")


class StoredBlock(NamedTuple):
    """A row of blocks, by the names in ``BLOCK``."""

    partition: int
    first: int
    last: int
    latest_us: int
    stored: int
    checks: bytes | None
    columns: tuple[bytes, ...]

    def is_whole(self, unchecked_up_to: int) -> bool:
        if self.checks is not None:
            return is_whole(self.checks, self.columns, *self[:5])
        return (
            are_numbers(self[:5]) and are_bytes(self.columns) and self.last <= unchecked_up_to
        )


def statements(template: str) -> dict[int, str]:
    """Return a statement for each format that can be read."""
    return {version: template.format(checks=checks) for version, checks in CHECKS.items()}


def stored_block(row: Sequence[Any]) -> StoredBlock:
    partition, first, last, latest_us, stored, checks, *columns = row
    return StoredBlock(partition, first, last, latest_us, stored, checks, tuple(columns))


def whole_blocks(
    rows: Iterable[Sequence[Any]],
    catalog: Catalog,
    partition: Partition,
    wanted: int,
    records: RecordsFormat,
) -> Iterator[StoredBlock]:
    """Yield blocks that follow each other, from the one that holds the sequence ``wanted``.

    Raise ``RangeDamaged`` at the first that is not what was written, or is missing.
    """
    unchecked = records.unchecked_up_to(partition.number)
    for row in rows:
        block = stored_block(row)
        if not block.is_whole(unchecked):
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
SELECT partition, first, last, latest_us, stored, {checks}, times FROM blocks
WHERE partition = ? AND latest_us >= ? ORDER BY latest_us, first LIMIT 1
"""
"""The block that holds the first change committed at or after a time."""


def sequence_since(
    row: Sequence[Any],
    catalog: Catalog,
    partition: Partition,
    time_us: int,
    records: RecordsFormat,
) -> int:
    """Return the last sequence before a time, by the row that ``SINCE`` selects."""
    *numbers, checks, times = row
    first, last = numbers[1], numbers[2]
    if checks is None:
        is_typed = are_numbers(numbers) and are_bytes([times])
        is_right = is_typed and last <= records.unchecked_up_to(partition.number)
    else:
        is_right = is_sealed(checks, *numbers) and is_column(checks, _TIMES, times)
    if not is_right:
        raise damaged(catalog, partition.id, first, last)
    try:
        return int(first) - 1 + behind(times, time_us)
    except BlockDamaged as error:
        raise damaged(catalog, partition.id, first, last) from error


END: Final = (
    "SELECT partition, last, latest_us, stored, first, size, {checks}, closed FROM partitions"
)


class End(NamedTuple):
    """The last sequence of a range, and whether it is the last for good."""

    last: int
    closed: bool


def end_of(row: Sequence[Any], catalog: Catalog, records: RecordsFormat) -> End:
    """Return the end of a partition, by a row of ``END``; raise ``RangeDamaged``."""
    end = sound_end(row, records)
    if end is None:
        raise damaged_end(catalog, row[0])
    return end


def sound_end(row: Sequence[Any], records: RecordsFormat) -> End | None:
    """Return what a row of ``END`` says, if it is what was written."""
    *numbers, checks, closed = row
    is_sound = is_sealed(checks, *numbers) if records.has_checksums else are_numbers(numbers)
    return End(last=numbers[1], closed=bool(closed)) if is_sound else None
