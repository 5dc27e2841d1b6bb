"""What the queries do, as OpenTelemetry metrics.

Spark tells a listener about every batch. The lag is how many sequences lie between what a
batch read and where the feed was: Spark's own metrics know nothing of a Python source.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from opentelemetry import metrics
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from .source.access import Access
from .source.offsets import Offset

_MILLIS: Final = 1000


class PipelineMetrics(StreamingQueryListener):
    """Counts what the queries of a pipeline do, by the name of the table."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        meter = metrics.get_meter("changefeed.pipeline")
        self._access = access
        self._changes = meter.create_counter(
            "changefeed.pipeline.changes", unit="{change}", description="Changes read"
        )
        self._dropped = meter.create_counter(
            "changefeed.pipeline.late",
            unit="{change}",
            description="Changes that came after the watermark and were dropped",
        )
        self._seconds = meter.create_histogram(
            "changefeed.pipeline.batch.duration", unit="s", description="Time for a batch"
        )
        self._lag = meter.create_gauge(
            "changefeed.pipeline.lag",
            unit="{sequence}",
            description="Sequences that wait, when the batch was done",
        )
        self._ended = meter.create_counter(
            "changefeed.pipeline.failures", unit="{failure}", description="Queries that failed"
        )
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        table = {"table": progress.name or str(progress.id)}
        self._changes.add(progress.numInputRows, table)
        self._seconds.record(progress.batchDuration / _MILLIS, table)
        dropped = sum(x.numRowsDroppedByWatermark for x in progress.stateOperators)
        self._dropped.add(dropped, table)
        for source in progress.sources:
            waiting = lag(self._access, source.endOffset, source.latestOffset)
            if waiting is not None:
                self._lag.set(waiting, table)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        self._lag.set(0, {"table": self._names.get(str(event.id), str(event.id))})

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        name = self._names.pop(str(event.id), str(event.id))
        if event.exception is not None:
            self._ended.add(1, {"table": name})


def lag(access: Access, end: str | None, latest: str | None) -> int | None:
    """Return how many sequences lie between two offsets, as Spark tells them."""
    if not end or not latest:
        return None
    done, newest = _marks(end), _marks(latest)
    return sum(
        max(0, access.order(mark.continuation) - access.order(done[name].continuation))
        for name, mark in newest.items()
        if name in done
    )


def _marks(text: str) -> Mapping[Any, Any]:
    return Offset.of(msgspec.json.decode(text)).marks
