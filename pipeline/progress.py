"""How far the queries are: what Spark reports of each batch, kept for status and metrics.

Spark knows nothing of ranges: what was read of each, and how much waits, follows from the
offsets. Spark leaves out the first offset of a query: where the query does not know it
either, what was read by range is not known for that batch.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pyspark.sql.streaming.listener import StreamingQueryProgress

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.reader import Access

_MILLIS: Final = 1000
_NO_OFFSET: Final = (None, "", "null", "None")  # each is seen, by version and by turn


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDone:
    """What a batch read of a range, ``None`` if that is not known, and what waits there."""

    changes: int | None
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """What one batch of a table did. ``late`` changes were dropped by a watermark."""

    table: str
    batch: int
    changes: int
    seconds: float
    late: int
    ranges: Mapping[RangeId, RangeDone]

    @property
    def lag(self) -> int:
        return sum(x.lag for x in self.ranges.values())


class SourceOffsets(Protocol):
    """The offsets of a source in Spark's progress; ``SourceProgress`` has much more."""

    @property
    def startOffset(self) -> str: ...  # noqa: N802 - Spark's name
    @property
    def endOffset(self) -> str: ...  # noqa: N802 - Spark's name
    @property
    def latestOffset(self) -> str: ...  # noqa: N802 - Spark's name


def batch_done(
    progress: StreamingQueryProgress, access: Access, start: Offset | None = None
) -> BatchDone:
    """Read what Spark reports of a batch. ``start`` is where the first one began."""
    ranges: dict[RangeId, RangeDone] = {}
    for source in progress.sources:
        ranges |= ranges_done(source, access, start if progress.batchId == 0 else None)
    return BatchDone(
        table=progress.name or str(progress.id),
        batch=progress.batchId,
        changes=_changes(progress, ranges, access),
        seconds=progress.batchDuration / _MILLIS,
        late=sum(x.numRowsDroppedByWatermark for x in progress.stateOperators),
        ranges=ranges,
    )


def _changes(
    progress: StreamingQueryProgress, ranges: Mapping[RangeId, RangeDone], access: Access
) -> int:
    """Count the changes of a batch, each once.

    Spark counts what is read, again where it reads again what it has lost. That is all there
    is for a feed whose positions do not count changes.
    """
    exact = [x.changes for x in ranges.values() if x.changes is not None]
    if access.positions_count_changes and ranges and len(exact) == len(ranges):
        return sum(exact)
    return progress.numInputRows


def ranges_done(
    source: SourceOffsets, access: Access, first: Offset | None = None
) -> Mapping[RangeId, RangeDone]:
    """Return what lies between the offsets of a batch, and between its end and the newest.

    ``first`` is where the batch began, where Spark does not say it.
    """
    start, end, newest = (
        None if text in _NO_OFFSET else Offset.of(text).marks
        for text in (source.startOffset, source.endOffset, source.latestOffset)
    )
    if start is None and first is not None:
        start = first.marks
    if end is None:
        return {}
    found, distance = {}, access.positions.distance
    for name, mark in end.items():
        begin = None if start is None else start.get(name, mark)
        last = mark if newest is None else newest.get(name, mark)
        found[name] = RangeDone(
            changes=None if begin is None else distance(begin.position, mark.position),
            lag=max(0, distance(mark.position, last.position)),
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSeen:
    """``rate`` is in changes per second since the batch before."""

    rate: float | None
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSeen:
    """A table now. ``changes`` were read since this process began; ``at`` is when."""

    table: str
    batch: int | None = None
    changes: int = 0
    rate: float | None = None
    lag: int | None = None
    ranges: Mapping[RangeId, RangeSeen]
    trouble: str | None = None
    at: float

    def after(self, done: BatchDone, now: float) -> "TableSeen":
        seconds = max(done.seconds, now - self.at if self.batch is not None else 0.0, 0.001)
        return replace(
            self,
            batch=done.batch,
            changes=self.changes + done.changes,
            rate=done.changes / seconds,
            lag=done.lag,
            ranges={
                name: RangeSeen(
                    rate=None if x.changes is None else x.changes / seconds, lag=x.lag
                )
                for name, x in done.ranges.items()
            },
            at=now,
        )

    def idle(self) -> "TableSeen":
        """Nothing waits."""
        still = {name: RangeSeen(rate=0.0, lag=0) for name in self.ranges}
        return replace(self, rate=0.0, lag=0, ranges=still)


class Board:
    """What is known of each table. Written by the listener and the keeper, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tables: dict[str, TableSeen] = {}

    def started(self, table: str) -> None:
        self._change(table, lambda x: replace(x, trouble=None))

    def in_trouble(self, table: str, reason: str) -> None:
        self._change(table, lambda x: replace(x, trouble=reason))

    def done(self, batch: BatchDone) -> None:
        self._change(batch.table, lambda x: x.after(batch, self._clock()))

    def idle(self, table: str) -> None:
        self._change(table, TableSeen.idle)

    def seen(self) -> Sequence[TableSeen]:
        with self._lock:
            return list(self._tables.values())

    def _change(self, table: str, change: Callable[[TableSeen], TableSeen]) -> None:
        with self._lock:
            known = self._tables.get(table)
            before = known or TableSeen(table=table, ranges={}, at=self._clock())
            self._tables[table] = change(before)
