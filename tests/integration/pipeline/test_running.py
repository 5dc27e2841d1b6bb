"""Queries that are kept running, with Spark: what it really says when a feed is away."""

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from changefeed.feeds.errors import FeedUnavailable
from changefeed.pipeline.metrics import PipelineListener
from changefeed.pipeline.progress import TableProgress
from changefeed.pipeline.run import listened
from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.drain import DrainGate
from changefeed.pipeline.source.spark import NAME
from changefeed.pipeline.supervisor import keep_running
from tests.support.pipeline_feeds import a_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def test_a_query_goes_on_when_its_feed_is_back_and_its_batches_are_counted(
    spark: "SparkSession", tmp_path: Path
) -> None:
    feed = a_log(tmp_path / "log", {"a": 30}, parts=1)
    hold, progress, reader = DrainGate(tmp_path), TableProgress(), InMemoryMetricReader()
    away = [FeedUnavailable("the feed is locked. Ask again") for _ in range(2)]
    reasons: list[str | None] = []
    counts: list[int] = []

    def keep(rows: "DataFrame", batch: int) -> None:
        if batch == 1 and away:
            raise away.pop()
        counts.append(rows.count())
        assert rows.count() == counts[-1], "Spark counts each change twice, and we do not"

    def start() -> "StreamingQuery":
        changes = spark.readStream.format(NAME).option("feed", feed)
        limited = changes.option("maxChangesPerBatch", "15").load()
        writer = limited.writeStream.foreachBatch(keep).queryName("orders")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with closing(open_access(feed)) as access:
        meter = MeterProvider([reader]).get_meter("test")
        with listened(spark, PipelineListener(access, progress, meter)):
            look = partial(_remember, progress, reasons)
            starters = {"orders": start}
            keep_running(starters, Stopping(), hold, progress=progress, fillers={}, look=look)
            _wait_for_events(spark)
    assert counts == [0, 15, 15]  # the first batch settles where to begin
    assert "the feed is locked. Ask again" in reasons
    assert reasons[-1] is None
    (seen,) = progress.status().tables
    assert (seen.batch, seen.lag, [x.lag for x in seen.ranges]) == (2, 0, [0])
    assert _counted(reader, "changefeed.pipeline.failures") == 2
    assert _counted(reader, "changefeed.pipeline.batches") == 3
    assert _counted(reader, "changefeed.pipeline.changes") == 30


def test_python_processes_keep_large_buffers_for_the_next_page(spark: "SparkSession") -> None:
    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [os.environ.get("MALLOC_TRIM_THRESHOLD_")]
        yield from (pa.RecordBatch.from_pydict({"bytes": found}) for _ in batches)

    assert spark.range(1).mapInArrow(told, "bytes string").collect() == [("268435456",)]


def _remember(progress: TableProgress, reasons: list[str | None]) -> None:
    reasons += [x.waits_for for x in progress.status().tables]


def _wait_for_events(spark: "SparkSession") -> None:
    """Spark tells its listeners later, from a queue."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)


def _counted(reader: InMemoryMetricReader, name: str) -> float:
    data = reader.get_metrics_data()
    assert data is not None
    found = [
        point.value  # type: ignore[union-attr] # counters have one
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if metric.name == name
    ]
    return sum(found)
