"""Queries that are kept running, with Spark: what it really says when a feed is away."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from changefeed.feeds.errors import FeedUnavailable
from changefeed.pipeline.metrics import PipelineListener
from changefeed.pipeline.progress import TableProgress
from changefeed.pipeline.run import listened
from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.drain import DrainGate
from changefeed.pipeline.source.planning import first_offset
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
    away = [FeedUnavailable("the feed is locked. Ask again")]
    reasons: list[str | None] = []
    counts: list[int] = []

    def keep(rows: "DataFrame", batch: int) -> None:
        if batch == 1 and away:
            raise away.pop()
        counts.append(rows.count())

    def start() -> "StreamingQuery":
        changes = spark.readStream.format(NAME).option("feed", feed)
        limited = changes.option("maxChangesPerBatch", "15").load()
        writer = limited.writeStream.foreachBatch(keep).queryName("orders")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    access = open_access(feed)
    listener = PipelineListener(access, progress, MeterProvider([reader]).get_meter("test"))
    spark.streams.addListener(listener)
    try:
        look = partial(_remember, progress, reasons)
        keep_running({"orders": start}, Stopping(), hold, progress=progress, look=look)
        _wait_for_events(spark)
    finally:
        spark.streams.removeListener(listener)
        access.close()
    assert counts == [0, 15, 15]  # the first batch settles where to begin
    assert "the feed is locked. Ask again" in reasons
    assert reasons[-1] is None
    (seen,) = progress.status().tables
    assert (seen.batch, seen.lag, [x.lag for x in seen.ranges]) == (2, 0, [0])
    assert _counted(reader, "changefeed.pipeline.failures") == 1
    assert _counted(reader, "changefeed.pipeline.batches") == 3
    assert _counted(reader, "changefeed.pipeline.changes") == 30


def test_changes_that_spark_reads_again_are_counted_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    feed, wanted = a_log(tmp_path / "log", {"a": 30}, parts=1), DrainGate(tmp_path)
    progress, reader = TableProgress(), InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")

    def read_twice(rows: "DataFrame", _: int) -> None:
        assert rows.count() == rows.count()

    def start() -> "StreamingQuery":
        changes = spark.readStream.format(NAME).options(feed=feed, maxChangesPerBatch="20")
        writer = changes.load().writeStream.foreachBatch(read_twice)
        writer = writer.queryName("orders").option("checkpointLocation", str(tmp_path / "c"))
        started.append(writer.trigger(availableNow=True).start())
        return started[-1]

    started: list[StreamingQuery] = []
    with closing(open_access(feed)) as access:
        starts = {"orders": first_offset(access, "beginning")}
        listener = PipelineListener(access, progress, meter, starts)
        with listened(spark, listener):
            keep_running({"orders": start}, Stopping(), wanted, progress=progress)
            _wait_for_events(spark)
    spark_counted = [x.numInputRows for query in started for x in query.recentProgress]
    assert sum(spark_counted) == 60, "Spark would count them, else this test shows nothing"
    assert _counted(reader, "changefeed.pipeline.changes") == 30


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
