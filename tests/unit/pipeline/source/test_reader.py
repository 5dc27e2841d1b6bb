"""The reader in the order in which Spark calls it, without a Spark session."""

import asyncio
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.record_batches import ENVELOPE
from changefeed.pipeline.source.spark import (
    BatchReader,
    ChangefeedSource,
    StreamReader,
    UnlimitedStreamReader,
)
from changefeed.runtime.errors import UserError
from tests.support.pipeline_feeds import a_log, append_to
from tests.support.succession import replace_partitions

pytestmark = pytest.mark.real_time


TEXT = StringType()
KINDS = [TEXT, LongType(), TEXT, TEXT, TEXT, TEXT, TEXT, TimestampType()]


def a_schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


def reader(feed: str, **options: str) -> StreamReader:
    return StreamReader(Options.of({"feed": feed, "pollInterval": "0", **options}))


def rows(one: StreamReader, start: object, end: object) -> int:
    assert isinstance(start, dict)
    assert isinstance(end, dict)
    slices = one.partitions(start, end)
    return sum(batch.num_rows for slice_ in slices for batch in one.read(slice_))


def settled(one: StreamReader) -> dict[str, Any]:
    """Return the end of the first batch, which has no rows: where reading begins."""
    return one.latestOffset(one.initialOffset(), ReadAllAvailable())


def test_where_reading_begins_is_settled_once_and_logged_as_the_end_of_the_first_batch(
    tmp_path: Path,
) -> None:
    feed = a_log(tmp_path / "log", {"a": 10})
    one = reader(feed, startingAt="now")
    first, end = one.initialOffset(), settled(one)
    append_to(tmp_path / "log", {"a": 5})
    again = reader(feed, startingAt="now")  # it died in the first batch: nothing is logged yet
    assert again.initialOffset() == first
    assert rows(again, first, end) == 0
    assert rows(again, end, again.latestOffset(end, ReadAllAvailable())) == 5


def unlimited(feed: str, **given: str) -> UnlimitedStreamReader:
    return UnlimitedStreamReader(Options.of({"feed": feed, "pollInterval": "0", **given}))


def test_a_log_has_no_snapshot_to_start_with(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 3})
    with pytest.raises(FeedRefused, match="Start from the beginning"):
        settled(reader(feed, initialSnapshot="true"))


def test_the_limit_is_the_option_unless_spark_wants_all(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 10})
    one = reader(feed, maxChangesPerBatch="4")
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    start = settled(one)
    assert rows(one, start, one.latestOffset(start, limit)) == 4
    assert rows(one, start, one.latestOffset(start, ReadAllAvailable())) == 10
    assert reader(feed).getDefaultReadLimit() == ReadAllAvailable()


def test_an_idle_stream_answers_late_and_reports_where_the_feed_is(tmp_path: Path) -> None:
    one = reader(a_log(tmp_path / "log", {"a": 10}), pollInterval="0.3")
    start = one.initialOffset()
    assert one.reportLatestOffset() is None
    end = one.latestOffset(start, ReadMaxRows(4))
    assert one.reportLatestOffset() == one.latestOffset(end, ReadAllAvailable())
    end = one.latestOffset(end, ReadAllAvailable())
    began = time.monotonic()
    assert one.latestOffset(end, ReadAllAvailable()) == end
    assert time.monotonic() - began >= 0.3


def test_without_limits_a_stream_reads_what_is_there_and_goes_on_through_an_era(
    tmp_path: Path,
) -> None:
    feed, log = a_log(tmp_path / "log", {"a": 10, "b": 10}, parts=1), tmp_path / "log"
    start = unlimited(feed).initialOffset()
    end = unlimited(feed).latestOffset()
    append_to(log, {"a": 5})
    whole = RangeId("e1.p01.v00-ff")
    asyncio.run(replace_partitions(log, [whole], [(0, 0, 99), (0, 100, 255)]))
    append_to(log, {"a": 7, "b": 7})
    after = unlimited(feed).latestOffset()  # each is of another process
    assert [rows(unlimited(feed), x, y) for x, y in ((start, end), (end, after))] == [20, 19]
    append_to(log, {"b": 3})
    assert rows(unlimited(feed), end, after) == 19, "a batch is repeated as it was"
    last = unlimited(feed).latestOffset()
    assert rows(unlimited(feed), after, last) == 3
    assert unlimited(feed).latestOffset() == last, "Spark compares them as text"


@pytest.mark.parametrize("given", [{"startingAt": "now"}, {"maxChangesPerBatch": "5"}])
def test_a_stream_without_limits_refuses_what_spark_would_not_keep(
    given: dict[str, str], tmp_path: Path
) -> None:
    feed = a_log(tmp_path / "log", {"a": 1})
    with pytest.raises(UserError, match=r"before 4\.2"):
        unlimited(feed, **given).initialOffset()


def test_a_batch_with_nothing_to_read_has_one_task_that_reads_nothing(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 3})
    one = BatchReader(Options.of({"feed": feed, "startingAt": "now"}))
    (slice_,) = one.partitions()
    assert list(one.read(pickle.loads(pickle.dumps(slice_)))) == []


def test_a_batch_lies_between_two_times(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 100}, parts=1)
    times = {"startingAt": "1970-01-01T00:00:10Z", "endingAt": "1970-01-01T00:00:20Z"}
    one = BatchReader(Options.of({"feed": feed, **times, "columns": "sequence"}))
    read = [y for x in one.partitions() for batch in one.read(x) for y in batch.to_pylist()]
    assert [x["sequence"] for x in read] == [*range(11, 21)]


def test_a_stream_refuses_an_end(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 3})
    source = ChangefeedSource({"feed": feed, "endingat": "now"})
    with pytest.raises(UserError, match="availableNow=True"):
        source.streamReader(a_schema(*zip(ENVELOPE, KINDS, strict=True)))


@pytest.mark.parametrize(
    "schema", [[("kind", TEXT), ("total", DoubleType())], [("key", TEXT)], [("sequence", TEXT)]]
)
def test_another_schema_is_refused_with_what_to_do_instead(
    tmp_path: Path, schema: list[tuple[str, DataType]]
) -> None:
    source = ChangefeedSource({"feed": a_log(tmp_path / "log", {})})
    for make in (source.reader, source.streamReader):
        with pytest.raises(UserError, match=r"columns', 'range,.*with_bodies"):
            make(a_schema(*schema))


def test_other_columns_on_an_existing_checkpoint_are_refused(tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 10})
    one = reader(feed, columns="key,body")
    start = settled(one)
    end = one.latestOffset(start, ReadMaxRows(4))
    assert rows(reader(feed, columns="key,body"), start, end) == 4
    other = reader(feed, columns="key,body,sequence")
    with pytest.raises(UserError, match="'key,body'"):
        other.latestOffset(end, ReadAllAvailable())
    with pytest.raises(UserError, match="'key,body'"):
        other.partitions(start, end)
