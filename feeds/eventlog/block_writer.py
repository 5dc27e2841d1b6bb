"""How appended records fill the blocks of one partition. Pure.

The state of a partition is a row of its own, written in the same transaction as its
blocks: where the next append begins, what its last block holds, and whether it is closed.
Small appends grow the last block until it is full, so that a log written one record at a
time reads as fast as one written in thousands. The price is that a growing block is
written again each time: at most 64 KiB for each append and partition.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from changefeed.feeds.eventlog import checksums
from changefeed.feeds.eventlog.block_format import Layout, lay_out
from changefeed.feeds.eventlog.records import BLOCK_BYTES, BLOCK_RECORDS, Encoded

_NO_TIME: Final = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of a partition.

    ``latest_us`` is the latest commit time so far: it never falls, even where commit
    times do. ``stored`` counts the bytes of all blocks. ``first`` is the sequence that the
    last block begins with, ``size`` its bytes, and ``checks`` the checksums of its columns;
    no block yet is an empty one from 1.
    """

    partition: int
    last: int = 0
    latest_us: int = _NO_TIME
    stored: int = 0
    first: int = 1
    size: int = 0
    checks: bytes = checksums.NONE
    closed: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        return (
            self.partition, self.last, self.latest_us, self.stored, self.first, self.size
        )  # fmt: skip

    @property
    def sealed(self) -> bytes:
        return checksums.seal(self.checks, *self.numbers)

    @property
    def is_full(self) -> bool:
        return self.last - self.first + 1 >= BLOCK_RECORDS or self.size >= BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Columns for the block of a partition that begins with ``first``, new or growing.

    The other fields describe the block as it is afterwards.
    """

    partition: int
    first: int
    last: int
    latest_us: int
    stored: int
    checks: bytes
    data: Layout

    def __post_init__(self) -> None:
        assert self.first <= self.last, f"block {self.first} ends at {self.last}"

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.partition, self.first, self.last, self.latest_us, self.stored

    @property
    def sealed(self) -> bytes:
        return checksums.seal(self.checks, *self.numbers)


def fill(tail: Tail, records: Iterable[Encoded]) -> tuple[Tail, list[Addition]]:
    """Put records into blocks."""
    assert not tail.closed, f"partition {tail.partition} is closed, and takes nothing"
    additions: list[Addition] = []
    pending: list[Encoded] = []
    last, latest_us, size = tail.last, tail.latest_us, tail.size
    room = tail.first + BLOCK_RECORDS - 1  # the last sequence that the block may hold
    if tail.is_full:
        tail, room, size = next_block(tail), last + BLOCK_RECORDS, 0
    for record in records:
        last += 1
        size += record[-1]
        latest_us = max(latest_us, record[0])
        pending.append(record)
        if last >= room or size >= BLOCK_BYTES:
            tail, addition = _grown(tail, pending, last, latest_us, size)
            additions.append(addition)
            tail, pending, size = next_block(tail), [], 0
            room = last + BLOCK_RECORDS
    if pending:
        tail, addition = _grown(tail, pending, last, latest_us, size)
        additions.append(addition)
    assert tail.last == last, f"partition {tail.partition} ends at {tail.last}, not at {last}"
    return tail, additions


def next_block(tail: Tail) -> Tail:
    """Return the end before a block that has nothing yet."""
    return replace(tail, first=tail.last + 1, size=0, checks=checksums.NONE)


def _grown(
    tail: Tail, pending: list[Encoded], last: int, latest_us: int, size: int
) -> tuple[Tail, Addition]:
    """End the block at ``last``, with ``size`` bytes in all."""
    name = f"partition {tail.partition}, block {tail.first}"
    assert last == tail.last + len(pending), (
        f"{name}: {len(pending)} records behind {tail.last} do not end at {last}"
    )
    assert latest_us >= tail.latest_us, f"{name}: {tail.latest_us} falls to {latest_us}"
    data = lay_out(pending)
    assert sum(map(len, data)) == size - tail.size, (
        f"{name}: {sum(map(len, data))} bytes were laid out, {size - tail.size} counted"
    )
    grown = replace(
        tail,
        last=last,
        latest_us=latest_us,
        stored=tail.stored + size - tail.size,
        size=size,
        checks=checksums.extend(tail.checks, data),
    )
    assert grown.stored > tail.stored, f"{name}: {tail.stored} bytes, and more records"
    addition = Addition(
        partition=grown.partition,
        first=grown.first,
        last=last,
        latest_us=latest_us,
        stored=grown.stored,
        checks=grown.checks,
        data=data,
    )
    return grown, addition
