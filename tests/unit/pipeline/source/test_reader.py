"""The reader in the order in which Spark calls it, without a Spark session."""

import pickle
import time
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.spark import StreamReader
from tests.support.pipeline_feeds import a_log, append_to

pytestmark = pytest.mark.real_time


def reader(feed: str, **options: str) -> StreamReader:
    return StreamReader(Options.of({"feed": feed, "idleSeconds": "0", **options}))


def rows(one: StreamReader, start: object, end: object) -> int:
    assert isinstance(start, dict)
    assert isinstance(end, dict)
    pieces = one.partitions(start, end)
    return sum(batch.num_rows for piece in pieces for batch in one.read(piece))


def test_changes_after_the_start_of_a_run_are_left_to_the_next_run(tmp_path: Path) -> None:
    one = reader(a_log(tmp_path / "log", {"a": 10, "b": 10}), idleSeconds="60")
    one.prepareForTriggerAvailableNow()
    append_to(tmp_path / "log", {"a": 5, "c": 5})
    start, sizes = one.initialOffset(), []
    began = time.monotonic()
    while (end := one.latestOffset(start, ReadMaxRows(8))) != start:
        sizes.append(rows(one, start, end))
        start = end
    assert sizes == [8, 8, 4]
    assert time.monotonic() - began < 30  # a run that is done does not wait for more
    assert rows(one, one.initialOffset(), start) == 20


def test_a_reader_after_a_crash_gives_the_logged_batch_again(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 10})
    one = reader(feed)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(7))
    append_to(tmp_path / "log", {"a": 5})
    again = reader(feed)  # it is asked for no offset, only for the partitions of the log
    assert rows(again, start, end) == 7
    assert rows(again, end, again.latestOffset(end, ReadAllAvailable())) == 8


def test_the_limit_is_the_option_unless_spark_wants_all(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 10})
    one = reader(feed, maxChangesPerTrigger="4")
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    start = one.initialOffset()
    assert rows(one, start, one.latestOffset(start, limit)) == 4
    assert rows(one, start, one.latestOffset(start, ReadAllAvailable())) == 10
    assert reader(feed).getDefaultReadLimit() == ReadAllAvailable()


def test_a_reader_is_pickled_without_what_it_has_open(tmp_path: Path) -> None:
    one = reader(a_log(tmp_path / "log", {"a": 10}))
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    copy = pickle.loads(pickle.dumps(one))
    (piece,) = one.partitions(start, end)
    assert sum(x.num_rows for x in copy.read(pickle.loads(pickle.dumps(piece)))) == 10


def test_an_idle_stream_answers_late_and_reports_where_the_feed_is(tmp_path: Path) -> None:
    one = reader(a_log(tmp_path / "log", {"a": 10}), idleSeconds="0.3")
    start = one.initialOffset()
    assert one.reportLatestOffset() is None
    end = one.latestOffset(start, ReadMaxRows(4))
    assert one.reportLatestOffset() == one.latestOffset(end, ReadAllAvailable())
    end = one.latestOffset(end, ReadAllAvailable())
    began = time.monotonic()
    assert one.latestOffset(end, ReadAllAvailable()) == end
    assert time.monotonic() - began >= 0.3
