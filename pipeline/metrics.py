"""What the queries do, as OpenTelemetry metrics, in the words of the host's.

Spark calls a listener for every batch. Without a configured provider, the instruments count
nothing and cost next to nothing.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from changefeed.pipeline.progress import BatchDone, TableProgress, batch_done
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.reader import Access

_TABLE: Final = "table"
_FROM_A_TENTH_TO_AN_HOUR: Final = (
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
"""Seconds, for batches of Spark."""


class PipelineMetrics:
    """The instruments. Lags are read off the progress whenever somebody asks."""

    def __init__(self, progress: TableProgress, meter: Meter | None = None) -> None:
        meter = meter or metrics.get_meter("changefeed.pipeline")
        self._progress = progress
        self._changes = meter.create_counter(
            "changefeed.pipeline.changes", "{change}", "Changes in batches that are done"
        )
        self._batches = meter.create_counter(
            "changefeed.pipeline.batches", "{batch}", "Batches that are done"
        )
        self._late = meter.create_counter(
            "changefeed.pipeline.rows_dropped",
            "{row}",
            "Came after the watermark and were dropped; a task's changes to one window are one",
        )
        self._seconds = meter.create_histogram(
            "changefeed.pipeline.batch.duration",
            "s",
            "Time for a batch",
            explicit_bucket_boundaries_advisory=_FROM_A_TENTH_TO_AN_HOUR,
        )
        self._failures = meter.create_counter(
            "changefeed.pipeline.failures", "{failure}", "Queries that failed"
        )
        meter.create_observable_gauge(
            "changefeed.pipeline.lag",
            [self._observe_lag],
            "{change}",
            "Changes in the range that the table has not had",
        )

    def done(self, batch: BatchDone) -> None:
        table = {_TABLE: batch.table}
        self._changes.add(batch.changes, table)
        self._batches.add(1, table)
        self._late.add(batch.late, table)
        self._seconds.record(batch.seconds, table)

    def failed(self, table: str) -> None:
        self._failures.add(1, {_TABLE: table})

    def _observe_lag(self, _: CallbackOptions) -> list[Observation]:
        return [
            Observation(x.lag, {_TABLE: one.table, "range": x.range})
            for one in self._progress.status().tables
            for x in one.ranges
        ]


class PipelineListener(StreamingQueryListener):
    """Passes what Spark reports to the metrics and to the status of tables.

    ``starts`` says where the first batches of tables began.
    """

    def __init__(
        self,
        access: Access,
        progress: TableProgress,
        meter: Meter | None = None,
        starts: Mapping[str, Offset] | None = None,
    ) -> None:
        super().__init__()
        self._access = access
        self._progress = progress
        self._metrics = PipelineMetrics(progress, meter)
        self._names: dict[str, str] = {}
        self._starts = starts or {}

    def failed_to_start(self, table: str) -> None:
        """Count a query that Spark could not even start, and so says nothing of."""
        self._metrics.failed(table)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        start = self._starts.get(event.progress.name or "")
        done = batch_done(event.progress, self._access, start)
        self._progress.done(done)
        self._metrics.done(done)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        name = self._names.pop(str(event.id), str(event.id))
        if event.exception is not None:
            self._metrics.failed(name)
