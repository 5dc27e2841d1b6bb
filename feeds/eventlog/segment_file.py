"""What is known of a segment beside its file of Parquet. Frozen.

The CRC-32 of each of its row groups and of what lies behind them bind a file to its place:
no other file is taken for it, and nothing is made of bytes that are not those that were
written. A row group is what is checked, and damaged, at once: some thousand changes.
"""

from dataclasses import dataclass
from typing import NamedTuple


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
        assert self.first <= sequence <= self.last, (
            f"{sequence} is not in the segment of {self.first} to {self.last}"
        )
        return next(n for n, x in enumerate(self.groups) if sequence <= x.last)

    def bounds(self, group: int) -> tuple[int, int]:
        """Return the first and the last sequence of a group."""
        assert 0 <= group < len(self.groups), (
            f"the segment of {self.first} to {self.last} has no group {group}"
        )
        before = self.groups[group - 1].last if group else self.first - 1
        return before + 1, self.groups[group].last
