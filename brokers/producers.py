"""What a partition knows of its producers, so that nothing is stored twice. Pure.

Each producer numbers its records for a partition from 1 without a gap. What follows on what
is there is new; what begins behind that is a gap. The last few batches are remembered with
their places and checksums: one of them that comes again, exactly as it was, is a duplicate, and
is answered as before. Other records under numbers that are there are those of another producer
with the same id. To call them duplicates would lose them without a word.

What a producer has given up may come late, after records that followed on it. It is of an
earlier generation then, of which nothing is taken any more.
"""

from collections import deque
from typing import NamedTuple

from changefeed.feeds.brokers.flush import REMEMBERED, PartitionEnd
from changefeed.feeds.brokers.protocol import Batch
from changefeed.feeds.eventlog.block_format import check_of


class New(NamedTuple):
    """The batch follows on what is there."""


class Duplicate(NamedTuple):
    """The batch is there; ``first`` is the sequence of its first record."""

    first: int


class Taken(NamedTuple):
    """Its numbers are there, with other records than these, as far as is remembered."""


class Gap(NamedTuple):
    """The batch does not follow on ``reached``, the last number that is there."""

    reached: int


class _Placed(NamedTuple):
    sequence: int
    records: int
    first: int
    check: int


class _Known:
    __slots__ = ("generation", "numbering", "placed", "reached")

    def __init__(self, batch: Batch) -> None:
        self.generation, self.numbering = batch.generation, batch.numbering
        self.reached = 0
        self.placed: deque[_Placed] = deque(maxlen=REMEMBERED)


class ProducerTable:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def check(self, batch: Batch) -> New | Duplicate | Gap | Taken:
        known = self._known.get(batch.producer)
        if known is not None and batch.generation != known.generation:
            if batch.generation < known.generation:
                return Taken()
            known = None
        reached = 0 if known is None else known.reached
        if batch.sequence == reached + 1:
            return New()
        if known is None or batch.sequence > reached:
            assert batch.sequence > reached + 1, f"{batch.sequence} follows on {reached}"
            return Gap(reached)
        for sequence, records, first, check in known.placed:
            if (sequence, records) == (batch.sequence, batch.count):
                return Duplicate(first) if check == check_of(batch.columns) else Taken()
        return Taken()

    def add(self, batch: Batch, first: int) -> int:
        """Note a new batch whose first record has the sequence ``first``; return its CRC-32."""
        known = self._known.get(batch.producer)
        if known is None or known.generation != batch.generation:
            known = self._known[batch.producer] = _Known(batch)
        assert batch.sequence == known.reached + 1, (
            f"{batch.producer} has reached {known.reached}: {batch.sequence} leaves a gap"
        )
        known.reached = batch.sequence + batch.count - 1
        check = check_of(batch.columns)
        assert first > 0, f"sequences count from 1, and {batch.producer} begins at {first}"
        known.placed.append(_Placed(batch.sequence, batch.count, first, check))
        return check

    def forget(self, producer: str) -> None:
        self._known.pop(producer, None)

    def reached(self, producer: str) -> tuple[str, int] | None:
        """Return its numbering and the last number of it, if it is known."""
        known = self._known.get(producer)
        return None if known is None else (known.numbering, known.reached)

    def __len__(self) -> int:
        return len(self._known)


def check_closed(end: PartitionEnd | None, batch: Batch) -> int | Taken:
    """Return the last of the producer's numbers that a closed partition has; 0 for none.

    The producer takes its records up to there for stored, so they have to be those that are.
    """
    reached = 0
    if end is not None:
        numbers = (x.sequence for x in end.producers if x.producer == batch.numbering)
        reached = next(numbers, 0)
    if end is None or batch.sequence > reached:
        return reached
    stored = (batch.sequence, batch.count, check_of(batch.columns))
    if stored not in end.batches_of(batch.numbering):
        return Taken()
    return reached
