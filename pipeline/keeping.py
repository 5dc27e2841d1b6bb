"""A pipeline as a process: Spark, the queries, the metrics, and an end in time."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, start_http_server
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from observers.registry import load_observer

from .metrics import PipelineMetrics
from .observing import NAME, register_observers, whole_ranges
from .running import keep_running
from .session import spark_session
from .settings import PipelineSettings
from .source.opening import open_access
from .tables.keeping import Keeping


def keep(
    settings: PipelineSettings,
    stop: threading.Event,
    *,
    once: bool = False,
    metrics_port: int | None = None,
    submitted: bool = False,
) -> None:
    """Keep the tables until ``stop`` is set or, with ``once``, until they are up to date.

    Raise ``QueryFailed`` if a table cannot be kept, and what opening the feed raises.
    """
    master = None if submitted else settings.master
    with (
        closing(open_access(settings.feed)) as access,  # refused before Spark is started
        _served(metrics_port),
        spark_session("changefeed", settings.spark, master=master) as spark,
    ):
        listener = PipelineMetrics(access)
        spark.streams.addListener(listener)
        try:
            keep_running(Keeping(spark=spark, settings=settings, once=once).starters(), stop)
        finally:
            spark.streams.removeListener(listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing:
    """An observer by its name, over a feed; positions are kept in ``checkpoint``."""

    feed: str
    observer: str
    checkpoint: str
    options: Mapping[str, object] = field(default_factory=dict)
    start: str = "beginning"
    max_changes: int = 100_000
    once: bool = False

    def started(self, spark: SparkSession) -> StreamingQuery:
        register_observers(spark)
        writer = (
            whole_ranges(spark, self.feed, self.start, self.max_changes)
            .writeStream.format(NAME)
            .queryName("observer")
            .option("observer", self.observer)
            .option("options", json.dumps(self.options))
            .option("checkpointLocation", self.checkpoint)
        )
        return (writer.trigger(availableNow=True) if self.once else writer).start()


def observe_until(stop: threading.Event, wanted: Observing) -> None:
    """Run an observer on executors until ``stop`` is set or, with ``once``, it is done."""
    load_observer(wanted.observer, wanted.options)  # refused before Spark is started
    open_access(wanted.feed).close()
    with spark_session("changefeed") as spark:
        keep_running({"observer": partial(wanted.started, spark)}, stop)


@contextmanager
def _served(port: int | None) -> Iterator[None]:
    """Let Prometheus fetch the metrics, if a port was named."""
    if port is None:
        yield
        return
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)])
    metrics.set_meter_provider(meters)
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        meters.shutdown()
