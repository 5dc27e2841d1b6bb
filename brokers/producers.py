"""What a partition knows of its producers, so that nothing is stored twice. Pure.

Each producer numbers its records for a partition from 1 without a gap. What follows on what
is there is new; what is there is a duplicate; anything else is a gap. The last few batches
are remembered with their places, so that a duplicate can be answered as before.
"""

from collections import deque
from typing import NamedTuple

from changefeed.feeds.brokers.protocol import Batch

_REMEMBERED = 5


class New(NamedTuple):
    """The batch follows on what is there."""


class Duplicate(NamedTuple):
    """The batch is there; ``first`` is the sequence of its first record, if remembered."""

    first: int | None


class Gap(NamedTuple):
    """The batch does not follow on ``reached``, the last number that is there."""

    reached: int


class _Placed(NamedTuple):
    sequence: int
    records: int
    first: int


class _Known:
    __slots__ = ("placed", "reached")

    def __init__(self) -> None:
        self.reached = 0
        self.placed: deque[_Placed] = deque(maxlen=_REMEMBERED)


class ProducerTable:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def check(self, batch: Batch) -> New | Duplicate | Gap:
        known = self._known.get(batch.producer)
        reached = 0 if known is None else known.reached
        if batch.sequence == reached + 1:
            return New()
        if known is None or batch.sequence + batch.count - 1 > reached:
            return Gap(reached)
        for placed in known.placed:
            skipped = batch.sequence - placed.sequence
            if skipped >= 0 and skipped + batch.count <= placed.records:
                return Duplicate(placed.first + skipped)
        return Duplicate(None)

    def add(self, batch: Batch, first: int) -> None:
        """Note a new batch whose first record has the sequence ``first``."""
        known = self._known.setdefault(batch.producer, _Known())
        known.reached = batch.sequence + batch.count - 1
        known.placed.append(_Placed(batch.sequence, batch.count, first))

    def forget(self, producer: str) -> None:
        self._known.pop(producer, None)

    def reached(self, producer: str) -> int:
        known = self._known.get(producer)
        return 0 if known is None else known.reached

    def __len__(self) -> int:
        return len(self._known)
