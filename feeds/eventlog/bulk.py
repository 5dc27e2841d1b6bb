"""Reading an event log in bulk: columns of many records, without a ``Change`` for each.

For engines that work on columns. Everything here blocks, and is for a process that has
nothing else to do: a Spark task, or the planner of a query. A ``BulkLog`` opens a connection
for each call, so nothing is left running behind; a ``BulkReader`` keeps its own.

Sequences in a range are dense, so the position that lies so many changes further on is
known without reading them; ``ends`` and ``position`` are all that planning takes.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from changefeed.feeds.errors import FeedRefused, RangeDamaged
from changefeed.feeds.eventlog.block_format import Layout, joined
from changefeed.feeds.eventlog.catalog import (
    Catalog,
    Partition,
    check_records,
    read_catalog,
)
from changefeed.feeds.eventlog.damage import damaged
from changefeed.feeds.eventlog.database import advised, opened
from changefeed.feeds.eventlog.ids import position, sequence_of
from changefeed.feeds.eventlog.schema import RECORDS
from changefeed.feeds.eventlog.sealed import (
    check_file,
    read_sealed,
    sealed_lasts,
    sealed_since,
    sealed_with,
    sequence_in_segment,
)
from changefeed.feeds.eventlog.segment_rows import Segment, segment_path
from changefeed.feeds.eventlog.stored_blocks import (
    BLOCK,
    END,
    SINCE,
    End,
    StoredBlock,
    end_of,
    sequence_since,
    stored_block,
    whole_blocks,
)
from changefeed.feeds.feed import Position, RangeId

_BATCH_BYTES = 64 * 1024 * 1024
"""A batch takes no more blocks once it has so many bytes, whatever its size."""

_BLOCKS = f"""
SELECT {BLOCK} FROM blocks
WHERE partition = :partition
    AND first >= coalesce(
        (SELECT max(first) FROM blocks WHERE partition = :partition AND first <= :begin), 0)
    AND first <= :end
ORDER BY first
"""  # noqa: S608 - names of our own columns
_END = f"{END} WHERE partition = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Records that follow each other in one range, as the blocks have them.

    ``first`` is the sequence of the first record wanted and ``count`` how many there are;
    ``skip`` records lie before it in ``layout``, and others may lie behind. Whether the
    columns fit together is not known yet: who makes something of them has to see.
    """

    first: int
    count: int
    skip: int
    layout: Layout

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """Changes with ``after < sequence <= end``, all of which are in one segment."""

    path: Path
    after: int
    end: int
    segment: Segment

    def __post_init__(self) -> None:
        file = self.segment.file
        assert file.first <= self.after + 1 <= self.end <= file.last, (
            f"{file.name()} does not hold {self.after + 1} to {self.end}"
        )

    @property
    def is_whole(self) -> bool:
        file = self.segment.file
        return (self.after + 1, self.end) == (file.first, file.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLog:
    """The log in a directory, as its catalog was when this was made. Make it with ``at``."""

    catalog: Catalog

    @classmethod
    def at(cls, path: str | Path) -> "BulkLog":
        """Read the catalog. Raise ``FeedRefused``, with advice, for what is no log."""
        return cls(catalog=read_catalog(Path(path)))

    def sequence(self, after: Position) -> int:
        """Return the last sequence before a position; refuse that of another log."""
        return sequence_of(after, self.catalog.identity)

    def position(self, sequence: int) -> Position:
        """Return the position behind a sequence, in any range of this log."""
        return position(self.catalog.identity, sequence)

    def ends(self) -> Mapping[RangeId, End]:
        """Return where every range ends now: one statement for each broker.

        A range counts as closed once the catalog says so too, and with it what goes on.
        """
        found: dict[RangeId, End] = {}
        for broker in self.catalog.folders:
            with _records(self.catalog, broker) as records:
                for row in records.execute(END):
                    partition = self.catalog.by_number.get(row[0])
                    if partition is not None:
                        end = end_of(row, self.catalog)
                        both = end.closed and partition.closed
                        found[partition.id] = End(last=end.last, closed=both)
        return found

    def sequence_before(self, range_id: RangeId, time_us: int) -> int:
        """Return the last sequence before the first change committed at or after a time."""
        partition = self.catalog.partition(range_id)
        with _records(self.catalog, partition.broker) as records:
            blocks = records.execute(SINCE, (partition.number, time_us)).fetchall()
            # Asked later, so what was sealed meanwhile is found here.
            segment = sealed_since(self.catalog, records, partition, time_us)
        if segment is not None:
            return sequence_in_segment(self.catalog, segment, time_us)
        if not blocks:
            return self.ends()[range_id].last
        return sequence_since(blocks[0], self.catalog, partition, time_us)

    def segments(self, range_id: RangeId, after: int, end: int) -> Sequence[SegmentPart]:
        """Return what of ``after < sequence <= end`` is in segments now, in their order.

        The files are there, and of the right size. Raise ``RangeDamaged`` else.
        """
        partition = self.catalog.partition(range_id)
        found: list[SegmentPart] = []
        with _records(self.catalog, partition.broker) as records:
            while after < end:
                one = sealed_with(self.catalog, records, partition, after + 1)
                if one is None:
                    break
                check_file(self.catalog, one)
                path = segment_path(self.catalog.home.absolute(), range_id, one.file)
                last = min(end, one.file.last)
                found.append(SegmentPart(path=path, after=after, end=last, segment=one))
                after = last
        return found

    def sealed_ends(self) -> Mapping[RangeId, int]:
        """Return the last sequence in segments of each range that has some."""
        found: dict[RangeId, int] = {}
        for broker in self.catalog.folders:
            with _records(self.catalog, broker) as records:
                for number, last in sealed_lasts(records):
                    partition = self.catalog.by_number.get(number)
                    if partition is not None:
                        found[partition.id] = last
        return found

    def is_sealed(self) -> bool:
        """Whether the log has segments."""
        return bool(self.sealed_ends())


class BulkReader:
    """Reads changes of a log, through connections that stay open until ``close``.

    All calls must come from one thread. To open a connection takes longer than to read a
    small piece of a range, and a task of Spark reads many such.
    """

    def __init__(self, log: BulkLog) -> None:
        self._catalog = log.catalog
        self._stack = ExitStack()
        self._open: dict[int, sqlite3.Connection] = {}

    def read(
        self, range_id: RangeId, after: int, end: int, *, batch: int = 8192
    ) -> Iterator[Columns]:
        """Yield the records with ``after < sequence <= end``, about ``batch`` at a time.

        Raise ``FeedRefused`` if they are not all there, as the log is another one, and
        ``RangeDamaged`` if they are not what was written.
        """
        partition = self._catalog.partition(range_id)
        while after < end:
            for columns in self._pieces(partition, after, end, batch):
                assert columns.first == after + 1, (
                    f"range {range_id!r}: {columns.first} was read behind {after}"
                )
                assert columns.count > 0, f"range {range_id!r}: nothing was read behind {after}"
                after += columns.count
                yield columns
        assert after <= end, f"range {range_id!r} was read up to {after}, {end} was wanted"

    def _pieces(
        self, partition: Partition, after: int, end: int, batch: int
    ) -> Iterator[Columns]:
        """Yield what one segment holds behind a sequence, or what blocks hold; at least one
        change.
        """
        done, damage = after, None
        with advised(self._catalog.folder(partition.broker) / RECORDS, partition.id):
            records = self._records(partition.broker)
            segment = sealed_with(self._catalog, records, partition, after + 1)
            if segment is None:
                try:
                    for columns in self._in_blocks(partition, after, end, batch):
                        done += columns.count
                        yield columns
                except RangeDamaged as error:
                    damage = error
                if done > after and damage is None:
                    return
                if done == after:  # what lay in blocks may have been sealed meanwhile
                    segment = sealed_with(self._catalog, records, partition, after + 1)
            if segment is not None:
                for columns in read_sealed(self._catalog, segment, after + 1):
                    if columns.first > end:
                        return
                    yield replace(columns, count=min(columns.count, end + 1 - columns.first))
                return
        raise damage or self._end_refused(partition, after, end)

    def _in_blocks(
        self, partition: Partition, after: int, end: int, batch: int
    ) -> Iterator[Columns]:
        where = {"partition": partition.number, "begin": after + 1, "end": end}
        rows = self._records(partition.broker).execute(_BLOCKS, where)
        wanted = after + 1
        found = whole_blocks(_behind(rows, after), self._catalog, partition, wanted)
        for blocks in _batches(found, batch):
            columns = _columns(blocks, after + 1, end)
            if columns.count > 0:
                assert columns.skip >= 0, f"{partition.id}: blocks begin behind {after + 1}"
                after += columns.count
                yield columns

    def _end_refused(self, partition: Partition, done: int, end: int) -> FeedRefused:
        if self._end(partition) >= end:
            return damaged(self._catalog, partition.id, done + 1, end)
        return FeedRefused(
            f"range {partition.id!r} has changes up to {done} only, {end} was wanted: the log "
            f"was restored from an older copy. Start from the beginning"
        )

    def _end(self, partition: Partition) -> int:
        with advised(self._catalog.folder(partition.broker) / RECORDS, partition.id):
            records = self._records(partition.broker)
            (row,) = records.execute(_END, (partition.number,)).fetchall()
        return end_of(row, self._catalog).last

    def close(self) -> None:
        self._stack.close()
        self._open.clear()

    def _records(self, broker: int) -> sqlite3.Connection:
        if broker not in self._open:
            opening = _records(self._catalog, broker)
            self._open[broker] = self._stack.enter_context(opening)
        return self._open[broker]


@contextmanager
def _records(catalog: Catalog, broker: int) -> Iterator[sqlite3.Connection]:
    """Connect to the records of a broker. Refuse those of another log."""
    with opened(catalog.folder(broker) / RECORDS, "ro") as connection:
        check_records(connection, catalog, broker)
        yield connection


def _behind(rows: Iterator[Sequence[Any]], after: int) -> Iterator[Sequence[Any]]:
    """Leave out the first row, if its block ends before what is wanted."""
    for n, row in enumerate(rows):
        if n or stored_block(row).last != after:
            yield row


def _batches(blocks: Iterable[StoredBlock], batch: int) -> Iterator[Sequence[StoredBlock]]:
    """Put blocks together until they have so many records, or too many bytes."""
    pending: list[StoredBlock] = []
    for block in blocks:
        pending.append(block)
        begin = pending[0]
        if block.last - begin.first + 1 >= batch or block.stored - begin.stored >= _BATCH_BYTES:
            yield pending
            pending = []
    if pending:
        yield pending


def _columns(blocks: Sequence[StoredBlock], begin: int, end: int) -> Columns:
    """Join blocks that follow each other; say what of them lies between two sequences."""
    first, last = blocks[0].first, blocks[-1].last
    return Columns(
        first=begin,
        count=min(last, end) - begin + 1,
        skip=begin - first,
        layout=joined(x.columns for x in blocks),
    )
