"""How far the queries of this process are: what Spark reports of each batch.

Spark knows nothing of ranges: where each is, and how much waits, follows from the offsets.
Spark leaves out the first offset of a query: where the query does not know it either, its
first changes are those that Spark has counted.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.reader import Access
from changefeed.pipeline.status import RangeToRead, TablesStatus, TableStatus, ranges_to_read
from changefeed.runtime.logs import get_logger

_log = get_logger()

_MILLIS: Final = 1000
_LOG_EVERY: Final = 10.0
_NO_OFFSET: Final = (None, "", "null", "None")  # each is seen, by version and by turn


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """What one batch of a table did. ``late`` changes were dropped by a watermark."""

    table: str
    batch: int
    changes: int
    seconds: float
    late: int
    ranges: tuple[RangeToRead, ...]


def batch_done(
    progress: StreamingQueryProgress, access: Access, first: Offset | None = None
) -> BatchDone:
    """Read what Spark reports of a batch. ``first`` is where the first one began."""
    (source,) = progress.sources
    return BatchDone(
        table=progress.name or str(progress.id),
        batch=progress.batchId,
        changes=_changes(progress, source, access, first if progress.batchId == 0 else None),
        seconds=progress.batchDuration / _MILLIS,
        late=sum(x.numRowsDroppedByWatermark for x in progress.stateOperators),
        ranges=_ranges(source, access),
    )


def _changes(
    progress: StreamingQueryProgress,
    source: SourceProgress,
    access: Access,
    first: Offset | None,
) -> int:
    """Count the changes of a batch, each once.

    Spark counts what is read, again where it reads again what it has lost. That is all there
    is for a feed whose positions do not count changes.
    """
    start, end = _offset(source.startOffset) or first, _offset(source.endOffset)
    if access.positions.each is None or start is None or end is None:
        return progress.numInputRows
    return sum(
        access.positions.distance(start.marks[x].position, mark.position)
        for x, mark in end.marks.items()
        if x in start.marks  # what is introduced is read in the batch after
    )


def _ranges(source: SourceProgress, access: Access) -> tuple[RangeToRead, ...]:
    """Return where the ranges are, and what waits in them."""
    end, newest = _offset(source.endOffset), _offset(source.latestOffset)
    if end is None:
        return ()
    ahead = end.marks if newest is None else {**end.marks, **newest.marks}
    distance = access.positions.distance
    lags = {
        x: max(0, distance(mark.position, ahead[x].position)) for x, mark in end.marks.items()
    }
    return ranges_to_read(end.marks, lags)


def _offset(text: str) -> Offset | None:
    return None if text in _NO_OFFSET else Offset.of(text)


class TableProgress:
    """The status of each table of this process. Written by the listener and the supervisor,
    read by any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, TableStatus] = {}

    def started(self, table: str) -> None:
        self._change(table, waits_for=None)

    def waits(self, table: str, reason: str) -> None:
        self._change(table, waits_for=reason)

    def done(self, batch: BatchDone) -> None:
        lag = sum(x.lag for x in batch.ranges)
        self._change(batch.table, batch=batch.batch, lag=lag, ranges=batch.ranges)

    def status(self) -> TablesStatus:
        with self._lock:
            return TablesStatus(tables=tuple(self._tables.values()))

    def _change(self, table: str, **changed: object) -> None:
        with self._lock:
            known = self._tables.get(table) or TableStatus(table=table, running=True)
            self._tables[table] = msgspec.structs.replace(known, **changed)


class ProgressLog:
    """Logs each table that has had a batch since its last line."""

    def __init__(self, progress: TableProgress, clock: Callable[[], float]) -> None:
        self._progress = progress
        self._clock = clock
        self._next = clock() + _LOG_EVERY
        self._logged: Sequence[TableStatus] = ()

    def look(self) -> None:
        if self._clock() < self._next:
            return
        self._next = self._clock() + _LOG_EVERY
        tables = self._progress.status().tables
        for x in tables:
            if x.batch is not None and x not in self._logged:
                _log.info("table.progress", table=x.table, batch=x.batch, lag=x.lag)
        self._logged = tables
