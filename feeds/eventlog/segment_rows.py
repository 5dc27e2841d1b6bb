"""What a log knows of its segments: files of Parquet that hold what was in its blocks. Frozen.

    segments/<range>/<first>-<last>.parquet

The row of a segment says between which sequences it lies, how large its file is, and the
CRC-32 of each of its row groups and of what lies behind them. It binds a file to its place:
no other file is taken for it, and nothing is made of bytes that are not those that were
written. A row group is what is checked, and damaged, at once: some thousand changes.
"""

import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId

SEGMENTS: Final = "segments"
"""The folder, relative to the log."""

_WITH: Final = """
SELECT * FROM segments WHERE partition = ? AND first <= ? ORDER BY first DESC LIMIT 1
"""
_SINCE: Final = """
SELECT * FROM segments WHERE partition = ? AND latest_us >= ? ORDER BY first LIMIT 1
"""
_GROUP: Final = struct.Struct("<qqqI")
_NUMBERS: Final = struct.Struct("<8q")
_PYARROW: Final = "pip install 'changefeed-host[segments]'"


class SegmentDamaged(Exception):
    """The bytes of a segment are not those that were written, from one sequence to another."""

    def __init__(self, first: int, last: int, reason: str) -> None:
        super().__init__(first, last, reason)
        self.first = first
        self.last = last


class Group(NamedTuple):
    """A row group: its last sequence, the latest commit time of the range up to there, where
    it ends in the file, and the CRC-32 of its bytes.
    """

    last: int
    latest_us: int
    end: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """What the file of a segment holds.

    ``is_text``: bodies and images before are UTF-8, and the file has them as strings; else as
    bytes. ``tail_crc`` is the CRC-32 of what lies behind the row groups.
    """

    first: int
    groups: tuple[Group, ...]
    size: int
    is_text: bool
    tail_crc: int

    @property
    def last(self) -> int:
        return self.groups[-1].last

    @property
    def latest_us(self) -> int:
        return self.groups[-1].latest_us

    def group_of(self, sequence: int) -> int:
        """Return the number of the group that holds a sequence of this segment."""
        assert self.first <= sequence <= self.last, f"{sequence} is not in {self.name()}"
        return next(n for n, x in enumerate(self.groups) if sequence <= x.last)

    def bounds(self, group: int) -> tuple[int, int]:
        """Return the first and the last sequence of a group."""
        assert 0 <= group < len(self.groups), f"{self.name()} has no group {group}"
        before = self.groups[group - 1].last if group else self.first - 1
        return before + 1, self.groups[group].last

    def name(self) -> str:
        return f"{self.first}-{self.last}.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment in the place of blocks. ``stored`` is that of the last block it holds."""

    partition: int
    stored: int
    file: SegmentFile

    @property
    def row(self) -> tuple[Any, ...]:
        groups = b"".join(_GROUP.pack(*x) for x in self.file.groups)
        return *self._numbers, groups, self._checks(groups)

    @classmethod
    def of(cls, row: Sequence[Any]) -> "Segment":
        """Read a row. Raise ``SegmentDamaged`` if it is not what was written."""
        try:
            partition, first, _, _, stored, size, is_text, tail_crc, groups, checks = row
            found = cls(
                partition=partition,
                stored=stored,
                file=SegmentFile(
                    first=first,
                    groups=tuple(Group(*x) for x in _GROUP.iter_unpack(groups)),
                    size=size,
                    is_text=bool(is_text),
                    tail_crc=tail_crc,
                ),
            )
            is_right = found.row == tuple(row) and found.file.groups and checks
        except (struct.error, TypeError, ValueError, IndexError):
            is_right = False
        if not is_right:
            ends = [x if type(x) is int else 0 for x in row[1:3]]
            raise SegmentDamaged(ends[0], ends[1], "what the log says of it is damaged")
        return found

    @property
    def _numbers(self) -> tuple[int, ...]:
        file = self.file
        return (
            self.partition, file.first, file.last, file.latest_us, self.stored,
            file.size, int(file.is_text), file.tail_crc,
        )  # fmt: skip

    def _checks(self, groups: bytes) -> int:
        return zlib.crc32(_NUMBERS.pack(*self._numbers), zlib.crc32(groups))


def segment_path(home: Path, range_id: RangeId, file: SegmentFile) -> Path:
    return home / SEGMENTS / range_id / file.name()


def segment_query(partition: int, sequence: int) -> tuple[str, Sequence[Any]]:
    """Return a statement for the segment that holds a sequence, or ends before it."""
    return _WITH, (partition, sequence)


def segment_since_query(partition: int, time_us: int) -> tuple[str, Sequence[Any]]:
    """Return a statement for the first segment with a change at or after a time."""
    return _SINCE, (partition, time_us)


def segments_of(records: sqlite3.Connection) -> Iterator[Segment]:
    """Yield all segments, in the order of partitions and sequences."""
    for row in records.execute("SELECT * FROM segments ORDER BY partition, first"):
        yield Segment.of(row)


def refuse_without_pyarrow(error: ImportError, home: Path) -> FeedRefused:
    return FeedRefused(
        f"the event log at {home} has segments, which are Parquet, and pyarrow is not "
        f"installed: {_PYARROW} ({error})"
    )
