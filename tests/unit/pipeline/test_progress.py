"""What is told of queries: positions, lags, rates, metrics, health. Without Spark."""

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.pipeline.metrics import PipelineMetrics
from changefeed.pipeline.progress import BatchDone, ProgressLog, TableProgress, batch_done
from changefeed.pipeline.settings import WebSettings
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.planning import first_offset, next_offset
from changefeed.pipeline.status import RangeToRead
from changefeed.pipeline.web import served
from changefeed.runtime.errors import UserError
from tests.support.logs import captured_logs
from tests.support.pipeline_feeds import a_log, memory_access

A, B = RangeId("a"), RangeId("b")


def source_offsets(start: str, end: str, latest: str) -> SimpleNamespace:
    """Return the offsets that Spark's progress has for a source."""
    return SimpleNamespace(startOffset=start, endOffset=end, latestOffset=latest)


def a_batch(number: int, *, read: int, lag: int, seconds: float = 2.0) -> BatchDone:
    return BatchDone(
        table="orders",
        batch=number,
        changes=read,
        seconds=seconds,
        late=3,
        ranges=(
            RangeToRead(range=A, position="7", lag=lag, ended=False),
            RangeToRead(range=B, position="9", lag=0, ended=True),
        ),
    )


def progress_of(batch: int, source: SimpleNamespace) -> Any:
    """Return what Spark reports of a batch, of which it has read 15 changes twice."""
    found = {
        "name": "orders",
        "batchId": batch,
        "sources": [source],
        "numInputRows": 45,
        "batchDuration": 2000,
        "stateOperators": [],
    }
    return SimpleNamespace(**found)


def test_progress_counts_changes_once_and_those_that_wait_by_the_offsets(
    tmp_path: Path,
) -> None:
    a_log(tmp_path / "log", {"k": 100}, parts=1)
    with closing(open_access(f"eventlog:{tmp_path / 'log'}")) as access:
        begin = first_offset(access, "beginning")
        middle = next_offset(access, begin, limit=30)
        last = next_offset(access, middle)
        (name,) = begin.marks
        # null and None, as Spark 4.2 spells them
        first = source_offsets("None", middle.as_text(), "null")
        second = source_offsets(begin.as_text(), middle.as_text(), last.as_text())
        third = source_offsets(middle.as_text(), last.as_text(), last.as_text())
        position = middle.marks[name].position
        waiting = RangeToRead(range=name, position=position, lag=70, ended=False)
        assert batch_done(progress_of(1, second), access).ranges == (waiting,)
        assert batch_done(progress_of(1, second), access).changes == 30
        assert batch_done(progress_of(0, first), access, begin).changes == 30
        assert batch_done(progress_of(1, third), access, begin).changes == 70
        unknown = batch_done(progress_of(0, first), access)
        assert unknown.changes == 45, "Spark's own count, where the beginning is not known"
        nothing = source_offsets("null", "null", "null")
        assert batch_done(progress_of(0, nothing), access).ranges == ()


def test_changes_of_a_feed_whose_positions_do_not_count_are_counted_by_spark() -> None:
    with memory_access(MemoryFeed([A])) as access:
        offset = first_offset(access, "beginning").as_text()
        source = source_offsets(offset, offset, offset)
        assert batch_done(progress_of(1, source), access).changes == 45


def test_a_table_is_logged_when_it_has_had_a_batch() -> None:
    progress, times = TableProgress(), iter([0.0, 5.0, 10.0, 10.0, 20.0, 20.0])
    lines = ProgressLog(progress, lambda: next(times))
    progress.done(a_batch(7, read=4000, lag=1234))
    with captured_logs() as logged:
        for _ in range(3):
            lines.look()
    (line,) = logged
    assert (line["event"], line["table"], line["batch"]) == ("table.progress", "orders", 7)
    assert line["lag"] == 1234


def test_metrics_count_batches_and_tell_the_lag_of_each_range() -> None:
    reader, progress = InMemoryMetricReader(), TableProgress()
    counted = PipelineMetrics(progress, MeterProvider([reader]).get_meter("test"))
    for done in (a_batch(0, read=0, lag=70), a_batch(1, read=40, lag=30)):
        progress.done(done)
        counted.done(done)
    counted.failed("orders")
    found = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]
    metrics = found["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    points = {
        (x["name"], *point["attributes"].values()): point.get("value", point.get("sum"))
        for x in metrics
        for point in x["data"]["data_points"]
    }
    assert points == {
        ("changefeed.pipeline.changes", "orders"): 40,
        ("changefeed.pipeline.batches", "orders"): 2,
        ("changefeed.pipeline.rows_dropped", "orders"): 6,
        ("changefeed.pipeline.batch.duration", "orders"): 4.0,
        ("changefeed.pipeline.failures", "orders"): 1,
        ("changefeed.pipeline.lag", "orders", "a"): 30,
        ("changefeed.pipeline.lag", "orders", "b"): 0,
    }


@pytest.mark.real_time
@pytest.mark.parametrize("bind", ["127.0.0.1", "::1"])
def test_a_pipeline_answers_at_its_address_and_is_ready_unless_a_table_waits(bind: str) -> None:
    progress, registry = TableProgress(), CollectorRegistry()
    progress.started("orders")
    with served(WebSettings(bind=bind, port=0), progress, registry) as address:
        assert json.load(urlopen(f"{address}/livez")) == {"alive": True}
        assert json.load(urlopen(f"{address}/readyz")) == {"ready": True, "problems": []}
        progress.waits("orders", "locked")
        with pytest.raises(HTTPError, match="503") as away:
            urlopen(f"{address}/readyz")
        with away.value as answer:
            assert json.load(answer)["problems"] == ["orders: locked"]
        (table,) = json.load(urlopen(f"{address}/tables"))["tables"]
        assert (table["table"], table["waits_for"]) == ("orders", "locked")
        assert urlopen(f"{address}/metrics").headers["content-type"].startswith("text/plain")
        with pytest.raises(HTTPError, match="404") as gone:
            urlopen(f"{address}/other")
        gone.value.close()
        taken = WebSettings(bind=bind, port=urlsplit(address).port)
        with (
            pytest.raises(UserError, match="Choose"),
            served(taken, progress, registry),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{address}/livez")
