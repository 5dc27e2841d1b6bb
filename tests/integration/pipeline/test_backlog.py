"""Backlogs of an event log that is partly sealed: by scans of Spark, the rest by the source."""

import asyncio
import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from changefeed import pipeline
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import Operation, RangeId
from changefeed.log.directory.directory import create_log
from changefeed.log.records import Record
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.backlog import planned
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.spark import slices_between
from tests.support.pipeline_feeds import append_records
from tests.support.succession import replace_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.usefixtures("all_in_parquet")

WHOLE = RangeId("e1.p01.v00-ff")


def records(begin: int, end: int) -> list[Record]:
    return [
        Record(
            key=f"k{n % 50}",
            id=f"i{n}" if n % 3 else None,
            body=b"" if n % 7 == 0 else b'{"n":%d}' % n,
            operation=Operation.DELETE if n % 9 == 0 else Operation.REPLACE,
            previous=b"{}" if n % 5 == 0 else None,
            committed_us=n * 1_000_000 - 10**15 * (n % 2),
        )
        for n in range(begin, end)
    ]


def append(path: Path, begin: int, end: int, *, seal: bool = False) -> None:
    append_records(path, records(begin, end), seal=seal)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three segments that two ranges share, two eras, and changes that are in blocks."""
    log = tmp_path / "a log %41=1"
    asyncio.run(create_log(log, 2))
    for n in range(3):
        append(log, 300 * n, 300 * n + 300, seal=True)
    asyncio.run(replace_partitions(log, [WHOLE], [(0, 0, 127), (0, 128, 255)]))
    append(log, 900, 1000, seal=True)
    append(log, 1000, 1100)
    return log


def through_the_source(spark: "SparkSession", path: Path, **options: str) -> "DataFrame":
    feed = f"eventlog:{path}"
    return spark.read.format("changefeed").options(feed=feed, **options).load()


def rows(found: "DataFrame") -> "list[Row]":
    return sorted(found.collect(), key=lambda x: (x.range, x.sequence))


def explained(found: "DataFrame") -> str:
    with redirect_stdout(io.StringIO()) as said:
        found.explain()
    return said.getvalue()


def test_a_backlog_is_read_by_spark_itself_and_the_rest_through_the_source(
    spark: "SparkSession", path: Path
) -> None:
    everything = "range,sequence,key,id,operation,body,previous,committed_at,generation"
    found = pipeline.read(spark, f"eventlog:{path}", columns=everything)
    truth = rows(through_the_source(spark, path, columns=everything))
    assert len(truth) == 1100
    assert {x.generation for x in truth} == {0, 1}
    assert rows(found) == truth
    assert found.columns == everything.split(",")
    said = explained(found)
    assert "FileScan parquet" in said
    assert "BatchScan changefeed" in said
    append(path, 1100, 1200, seal=True)  # what was to be read is settled
    assert rows(found) == truth
    assert len(rows(pipeline.read(spark, f"eventlog:{path}"))) == 1200


def test_a_log_that_is_sealed_whole_is_read_without_python_and_only_what_is_asked_for(
    spark: "SparkSession", path: Path
) -> None:
    append(path, 1100, 1101, seal=True)
    found = pipeline.read(spark, f"eventlog:{path}", columns="key,sequence")
    wanted = found.where("sequence > 400").select("key")
    said = explained(wanted)
    assert "changefeed" not in said
    assert "GreaterThan(sequence,400)" in said
    assert "body" not in said.partition("ReadSchema")[2]
    truth = through_the_source(spark, path).where("sequence > 400").select("key")
    assert sorted(wanted.collect()) == sorted(truth.collect())


def test_any_two_points_have_the_same_changes_between_them_either_way(
    spark: "SparkSession", path: Path
) -> None:
    chance = Random(5)
    mark = path_mark(path)
    for _ in range(2):
        begin, end = sorted(chance.sample(range(500), 2))
        points = {
            "startingAt": f'{{"e1.p02.v00-ff":["{mark}/{begin}",false,0]}}',
            "endingAt": f'{{"e1.p02.v00-ff":["{mark}/{end}",false,0]}}',
        }
        found = rows(pipeline.read(spark, f"eventlog:{path}", **points))
        assert found == rows(through_the_source(spark, path, **points))
        assert [x.sequence for x in found] == [*range(begin + 1, end + 1)]


def path_mark(path: Path) -> str:
    access = open_access(f"eventlog:{path}")
    try:
        starts = access.starts([RangeId("e1.p02.v00-ff")], "beginning")
    finally:
        access.close()
    return starts[RangeId("e1.p02.v00-ff")].partition("/")[0]


def test_bodies_that_are_no_text_are_escaped_on_either_way(
    spark: "SparkSession", path: Path
) -> None:
    records = [Record(key=x, body=x.encode("latin-1")) for x in "\xff\xfe"]
    append_records(path, records, seal=True)
    append(path, 1100, 1200, seal=True)
    found = pipeline.read(spark, f"eventlog:{path}")
    assert rows(found) == rows(through_the_source(spark, path))
    assert {r"\xff", r"\xfe"} <= {x.body for x in found.collect()}


def plan_of(path: Path) -> Iterator[object]:
    access = open_access(f"eventlog:{path}")
    try:
        yield planned(access, slices_between(access, Options.of({"feed": f"eventlog:{path}"})))
    finally:
        access.close()


def segments(path: Path) -> Sequence[Path]:
    return sorted(path.glob("segments/log/*.parquet"))


def test_a_segment_that_was_cut_is_refused_before_anything_is_read(path: Path) -> None:
    one = segments(path)[1]
    one.write_bytes(one.read_bytes()[:-1])
    with pytest.raises(RangeDamaged, match=r"e1\.p0[12]"):
        next(iter(plan_of(path)))


def test_a_byte_that_was_changed_in_a_segment_ends_the_query(
    spark: "SparkSession", path: Path
) -> None:
    one = segments(path)[1]
    data = bytearray(one.read_bytes())
    data[len(data) // 4] ^= 1
    one.write_bytes(data)
    found = pipeline.read(spark, f"eventlog:{path}")
    with pytest.raises(Exception, match=r"(?i)parquet|checksum|page"):
        found.collect()
