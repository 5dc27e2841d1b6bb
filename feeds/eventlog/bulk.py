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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.eventlog.block_format import COLUMNS, Layout, behind, joined
from changefeed.feeds.eventlog.catalog import Catalog, read_catalog
from changefeed.feeds.eventlog.database import advised, opened
from changefeed.feeds.eventlog.ids import position, sequence_of
from changefeed.feeds.eventlog.schema import FORMAT, RECORDS
from changefeed.feeds.feed import Continuation, RangeId

_BATCH_BYTES = 64 * 1024 * 1024
"""A batch takes no more blocks once it has so many bytes, whatever its size."""

_BLOCKS = f"""
SELECT first, last, stored, {COLUMNS} FROM blocks
WHERE partition = :partition
    AND first >= coalesce(
        (SELECT max(first) FROM blocks WHERE partition = :partition AND first <= :begin), 0)
    AND first <= :end
ORDER BY first
"""  # noqa: S608 - names of our own columns
_SINCE = """
SELECT first, times FROM blocks
WHERE partition = ? AND latest_us >= ? ORDER BY latest_us, first LIMIT 1
"""
_ENDS = "SELECT partition, last, closed FROM partitions"
_IDENTITY = "SELECT identity, format, broker FROM log"

_Block = tuple[Any, ...]
"""Its first and its last sequence, the bytes up to its end, and its columns."""


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
class End:
    """The last sequence of a range, and whether it is the last for good."""

    last: int
    closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLog:
    """The log in a directory, as its catalog was when this was made. Make it with ``at``."""

    catalog: Catalog

    @classmethod
    def at(cls, path: str | Path) -> "BulkLog":
        """Read the catalog. Raise ``FeedRefused``, with advice, for what is no log."""
        return cls(catalog=read_catalog(Path(path)))

    def sequence(self, after: Continuation) -> int:
        """Return the last sequence before a position; refuse that of another log."""
        return sequence_of(after, self.catalog.identity)

    def position(self, sequence: int) -> Continuation:
        """Return the position behind a sequence, in any range of this log."""
        return position(self.catalog.identity, sequence)

    def ends(self) -> Mapping[RangeId, End]:
        """Return where every range ends now: one statement for each broker.

        A range counts as closed once the catalog says so too, and with it what goes on.
        """
        found: dict[RangeId, End] = {}
        for broker in self.catalog.folders:
            with _records(self.catalog, broker) as records:
                for number, last, closed in records.execute(_ENDS):
                    partition = self.catalog.by_number.get(number)
                    if partition is not None:
                        both = bool(closed) and partition.closed
                        found[partition.id] = End(last=last, closed=both)
        return found

    def sequence_before(self, range_id: RangeId, time_us: int) -> int:
        """Return the last sequence before the first change committed at or after a time."""
        partition = self.catalog.partition(range_id)
        with _records(self.catalog, partition.broker) as records:
            blocks = records.execute(_SINCE, (partition.number, time_us)).fetchall()
        if not blocks:
            return self.ends()[range_id].last
        ((first, times),) = blocks
        return int(first) - 1 + behind(times, time_us)


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

        Raise ``FeedRefused`` if they are not all there: the log is another one, or damaged.
        """
        if after >= end:
            return
        partition = self._catalog.partition(range_id)
        where = {"partition": partition.number, "begin": after + 1, "end": end}
        done = after
        with advised(self._catalog.folder(partition.broker) / RECORDS):
            rows = self._records(partition.broker).execute(_BLOCKS, where)
            for blocks in _batches(rows, batch):
                columns = _columns(blocks, done + 1, end)
                if columns.count > 0:
                    done += columns.count
                    yield columns
        if done < end:
            raise FeedRefused(
                f"range {range_id!r} has changes up to {done} only, {end} was wanted: the log "
                f"was restored from an older copy. Start from the beginning"
            )

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
    """Open the records of a broker for a moment; refuse those of another log."""
    path = catalog.folder(broker) / RECORDS
    with opened(path, "ro") as records:
        if records.execute(_IDENTITY).fetchall() != [(catalog.identity, FORMAT, broker)]:
            raise FeedRefused(
                f"{path} holds the records of another log than its catalog says: restore the "
                f"whole directory from one copy"
            )
        yield records


def _batches(blocks: Iterable[_Block], batch: int) -> Iterator[Sequence[_Block]]:
    """Put blocks together until they have so many records, or too many bytes."""
    pending: list[_Block] = []
    for block in blocks:
        pending.append(block)
        (first, _, stored, *_), last, now_stored = pending[0], block[1], block[2]
        if last - first + 1 >= batch or now_stored - stored >= _BATCH_BYTES:
            yield pending
            pending = []
    if pending:
        yield pending


def _columns(blocks: Sequence[_Block], begin: int, end: int) -> Columns:
    """Join blocks that follow each other; say what of them lies between two sequences."""
    first, last = blocks[0][0], blocks[-1][1]
    return Columns(
        first=begin,
        count=min(last, end) - begin + 1,
        skip=begin - first,
        layout=joined(x[3:] for x in blocks),
    )
