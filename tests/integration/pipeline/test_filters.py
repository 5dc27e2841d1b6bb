"""Filters that Spark pushes into a batch."""

import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.spark import BatchReader, ChangefeedSource, FilteringReader
from tests.support.pipeline_cosmos import ServedCosmos, served_cosmos
from tests.support.pipeline_feeds import a_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.filterwarnings("default"),  # pyspark's own are not ours to mend
]
RANGE, SEQUENCE, TIME = ("range",), ("sequence",), ("committed_at",)
LAST = (1 << 16) - 1


@pytest.fixture
def cosmos() -> Iterator[ServedCosmos]:
    with served_cosmos() as made:
        yield made


def found(reader: BatchReader) -> list[dict[str, Any]]:
    """Read as Spark does: each task with a copy of the reader."""
    tasks, copy = reader.partitions(), pickle.loads(pickle.dumps(reader))
    return [y for x in tasks for batch in copy.read(x) for y in batch.to_pylist()]


def pushed(feed: str, filters: Sequence[Filter]) -> tuple[list[Any], list[Filter], int]:
    """Return what is read with filters, those left to Spark, and how much is planned."""
    one = FilteringReader(Options.of({"feed": feed}))
    left = list(one.pushFilters([*filters]))
    planned = sum(y.changes or 0 for x in one.partitions() for y in x.value)
    return found(one), left, planned


def test_ranges_and_sequences_are_kept_exactly_and_a_time_is_where_reading_begins(
    tmp_path: Path,
) -> None:
    feed = a_log(tmp_path / "log", {f"k{n}": 50 for n in range(8)})
    rows = found(BatchReader(Options.of({"feed": feed})))
    (one, *_), names = sorted({x["range"] for x in rows}), {x["range"] for x in rows}
    late = datetime.fromtimestamp(45, UTC)
    some: list[Filter] = [In(RANGE, (one, "nowhere")), GreaterThan(SEQUENCE, 3)]
    some += [
        LessThanOrEqual(SEQUENCE, 9),
        LessThan(SEQUENCE, 9),
        GreaterThanOrEqual(SEQUENCE, 2),
    ]
    read, left, planned = pushed(feed, some)
    assert read == [x for x in rows if x["range"] == one and 3 < x["sequence"] < 9]
    assert (left, planned) == ([], 5)
    exact = [EqualTo(RANGE, one), EqualTo(SEQUENCE, 7)]
    assert [x["sequence"] for x in pushed(feed, exact)[0]] == [7]
    bound, other = GreaterThan(TIME, late), EqualTo(("key",), "k1")
    read, left, planned = pushed(feed, [bound, other])
    assert left == [bound, other]
    wanted = [x for x in rows if x["committed_at"] > late]
    assert [x for x in read if x["committed_at"] > late] == wanted
    assert len(names) > 1
    assert planned < len(rows)


def test_a_part_of_a_transaction_is_kept_exactly(cosmos: ServedCosmos) -> None:
    cosmos.put_together("abc", "p")
    cosmos.put_together("def", "p")
    cosmos.put_together("ghi", "p")
    feed = cosmos.address()
    rows = found(BatchReader(Options.of({"feed": feed})))
    sequences = [x["sequence"] for x in rows]
    assert len(sequences) == 9
    for first in sequences:
        for last in sequences:
            within = [GreaterThanOrEqual(SEQUENCE, first), LessThanOrEqual(SEQUENCE, last)]
            read, left, planned = pushed(feed, within)
            assert read == [x for x in rows if first <= x["sequence"] <= last]
            assert not left
            assert planned <= 1 + max(0, (last >> 16) - (first >> 16))
    all_versions = cosmos.address("all-versions") + "&max_ru=1000000"
    since = GreaterThan(TIME, datetime.fromtimestamp(1, UTC))
    one = FilteringReader(Options.of({"feed": all_versions, "startingAt": "now"}))
    assert list(one.pushFilters([since])) == [since]
    assert found(one) == []


def test_a_stream_has_no_filters_to_push(tmp_path: Path) -> None:
    source = ChangefeedSource({"feed": a_log(tmp_path / "log", {}), "pushFilters": "true"})
    with pytest.raises(PipelineRefused, match="pushFilters"):
        source.streamReader(source.schema())


@pytest.fixture
def pushing(spark: "SparkSession") -> "Iterator[SparkSession]":
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def changes(spark: "SparkSession", feed: str) -> "DataFrame":
    made = spark.read.format("changefeed").options(feed=feed, pushFilters="true")
    return made.load()


def test_spark_pushes_filters_and_reuses_their_plan_for_another_scan_of_the_data_frame(
    pushing: "SparkSession", tmp_path: Path
) -> None:
    feed = a_log(tmp_path / "log", {"a": 10}, parts=1)
    few = changes(pushing, feed).where("sequence <= 3")
    assert [x.sequence for x in few.select("sequence").collect()] == [1, 2, 3]
    both = changes(pushing, feed)
    low, high = both.where("sequence <= 3"), both.where("sequence > 3")
    union = sorted(x.sequence for x in low.union(high).select("sequence").collect())
    assert union != [*range(1, 11)], (
        "Spark plans each scan of a DataFrame anew now: let pushFilters be true by default, "
        "and take the warning out of docs/pipeline.md and pipeline/source/filters.py"
    )
