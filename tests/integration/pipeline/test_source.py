"""The source as Spark uses it: in batches, as a stream, and through a new era."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from changefeed.feeds.feed import RangeId
from tests.support.pipeline_feeds import a_log, append_to
from tests.support.spark_queries import drain
from tests.support.succession import replace_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


WHOLE = RangeId("e1.p01.v00-ff")


def read(spark: "SparkSession", feed: str, **options: str) -> "DataFrame":
    return spark.read.format("changefeed").options(feed=feed, **options).load()


def stream(spark: "SparkSession", feed: str, **options: str) -> "DataFrame":
    return spark.readStream.format("changefeed").options(feed=feed, **options).load()


def drained(changes: "DataFrame", out: Path) -> Sequence["dict[str, Any]"]:
    """Write what is there now; return progress."""
    query = drain(changes, str(out / "table"), str(out / "checkpoint"))
    return [dict(x) for x in query.recentProgress]


def written(spark: "SparkSession", out: Path) -> "list[Row]":
    return sorted(spark.read.parquet(str(out / "table")).collect())


def test_a_batch_has_every_change_with_the_columns_of_all_feeds(
    spark: "SparkSession", tmp_path: Path
) -> None:
    feed = a_log(tmp_path / "log", {"a": 3, "b": 2})
    changes = read(spark, feed)
    assert changes.columns == [
        *("range", "sequence", "key", "id", "operation", "body", "previous", "committed_at")
    ]
    rows = changes.orderBy("key", "sequence").select("key", "id", "operation", "body").collect()
    assert [tuple(x) for x in rows] == [
        *(("a", "a", "insert", f'{{"n": {n}}}') for n in range(3)),
        *(("b", "b", "insert", f'{{"n": {n}}}') for n in range(2)),
    ]


def test_a_batch_lies_between_two_times_or_offsets(
    spark: "SparkSession", tmp_path: Path
) -> None:
    feed = a_log(tmp_path / "log", {"a": 100}, parts=1)
    times = {
        "startingAt": "1970-01-01T00:00:10+00:00",
        "endingAt": "1970-01-01T00:00:20+00:00",
    }
    ten = read(spark, feed, **times, columns="sequence").orderBy("sequence").collect()
    assert [x.sequence for x in ten] == list(range(11, 21))


def test_a_stream_goes_on_through_a_new_era(spark: "SparkSession", tmp_path: Path) -> None:
    feed = a_log(tmp_path / "log", {"a": 10, "b": 10}, parts=1)
    changes = stream(spark, feed, columns="range,sequence,key,generation")
    drained(changes, tmp_path)
    append_to(tmp_path / "log", {"a": 5})
    asyncio.run(replace_partitions(tmp_path / "log", [WHOLE], [(0, 0, 99), (0, 100, 255)]))
    append_to(tmp_path / "log", {"a": 7, "b": 7})
    drained(changes, tmp_path)
    rows = written(spark, tmp_path)
    assert len(rows) == len({(x.range, x.sequence) for x in rows}) == 39
    assert sorted(x.generation for x in rows) == [0] * 25 + [1] * 14


def test_python_processes_keep_large_buffers_for_the_next_page(spark: "SparkSession") -> None:
    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [os.environ.get("MALLOC_TRIM_THRESHOLD_")]
        yield from (pa.RecordBatch.from_pydict({"bytes": found}) for _ in batches)

    assert spark.range(1).mapInArrow(told, "bytes string").collect() == [("268435456",)]
