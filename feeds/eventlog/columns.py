"""Reading an event log in bulk: columns of many records, without a ``Change`` for each.

For engines that work on columns. Everything here blocks, and is for a process that has
nothing else to do: a Spark task, or the planner of a query. A connection is opened for
each call and closed by the thread that opened it, so nothing is left running behind.

Sequences in a range are dense, so the position that lies so many changes further on is
known without reading them; ``ends`` and ``position`` are all that planning takes.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from feeds.errors import FeedRefused
from feeds.feed import Continuation, Operation, RangeId

from .catalog import Catalog, Partition, read_catalog
from .database import opened
from .positions import position, sequence_of
from .schema import FORMAT, RECORDS

_OPERATIONS = tuple(str(x) for x in (Operation.INSERT, Operation.REPLACE, Operation.DELETE))
_KEY, _ID, _OPERATION, _BODY, _TIME, _PREVIOUS = range(6)
_ARRAY_32 = b"\xdd"

_BLOCKS = """
SELECT first, last, data FROM blocks
WHERE partition = :partition
    AND first >= coalesce(
        (SELECT max(first) FROM blocks WHERE partition = :partition AND first <= :begin), 0)
    AND first <= :end
ORDER BY first
"""
_SINCE = """
SELECT first, last, data FROM blocks
WHERE partition = ? AND latest_us >= ? ORDER BY latest_us, first LIMIT 1
"""
_ENDS = "SELECT partition, last, closed FROM partitions"
_IDENTITY = "SELECT identity, format, broker FROM log"
_decode = msgspec.msgpack.Decoder(list[list[Any]]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Records that follow each other in one range, a column for each field.

    Bodies and images before are JSON text as bytes: an empty one is no body, ``None`` no
    image. ``first`` is the sequence of the first record.
    """

    first: int
    keys: Sequence[str]
    ids: Sequence[str]
    operations: Sequence[str]
    bodies: Sequence[bytes]
    committed_us: Sequence[int]
    previous: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.keys)


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
        first: int = blocks[0][0]
        times = _columns(partition, blocks, first, blocks[0][1]).committed_us
        return first - 1 + next(n for n, x in enumerate(times) if x >= time_us)

    def read(
        self, range_id: RangeId, after: int, end: int, *, batch: int = 8192
    ) -> Iterator[Columns]:
        """Yield the records with ``after < sequence <= end``, about ``batch`` at a time.

        Raise ``FeedRefused`` if they are not all there: the log is another one, or damaged.
        """
        partition = self.catalog.partition(range_id)
        done = after
        with _records(self.catalog, partition.broker) as records:
            where = {"partition": partition.number, "begin": after + 1, "end": end}
            pending: list[tuple[int, int, bytes]] = []
            for block in records.execute(_BLOCKS, where):
                pending.append(block)
                if block[1] - pending[0][0] + 1 >= batch:
                    columns = _columns(partition, pending, done + 1, end)
                    done += len(columns)
                    yield columns
                    pending = []
            if pending and done < end:
                columns = _columns(partition, pending, done + 1, end)
                done += len(columns)
                yield columns
        if done < end:
            raise FeedRefused(
                f"range {range_id!r} has changes up to {done} only, {end} was wanted: the log "
                f"was restored from an older copy. Start from the beginning"
            )


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


def _columns(
    partition: Partition, blocks: Sequence[tuple[int, int, bytes]], begin: int, end: int
) -> Columns:
    """Decode blocks that follow each other; leave out what lies before and behind."""
    first, count = blocks[0][0], blocks[-1][1] - blocks[0][0] + 1
    data = b"".join((_ARRAY_32 + count.to_bytes(4, "big"), *(x for _, _, x in blocks)))
    try:
        records = _decode(data)
    except msgspec.DecodeError as error:
        raise FeedRefused(
            f"the changes of range {partition.id!r} from {first} on cannot be read: the log "
            f"is damaged. Restore its directory from a copy"
        ) from error
    if begin > first or first + count - 1 > end:
        records = records[begin - first : end - first + 1]
    fields = list(zip(*records, strict=False))  # a newer writer may add fields at the end
    keys = fields[_KEY]
    return Columns(
        first=begin,
        keys=keys,
        ids=[key if id_ is None else id_ for key, id_ in zip(keys, fields[_ID], strict=True)],
        operations=[_OPERATIONS[x] for x in fields[_OPERATION]],
        bodies=fields[_BODY],
        committed_us=fields[_TIME],
        previous=fields[_PREVIOUS],
    )
