"""Tables that are far behind: filled by scans of segments, then kept through the source."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from changefeed.feeds.feed import Operation, RangeId
from changefeed.log.records import Record
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.tables import filling
from changefeed.pipeline.tables.delta_sink import append_once
from changefeed.pipeline.tables.queries import TableQueries
from tests.support.delta_rows import read_by_duckdb, rows_of
from tests.support.pipeline_feeds import a_log, append_records
from tests.support.spark_queries import run_to_end
from tests.support.succession import replace_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("all_in_parquet")

WHOLE = RangeId("e1.p01.v00-ff")


def append(path: Path, begin: int, end: int, *, seal: bool = False) -> None:
    records = [
        Record(
            key=f"k{n % 40}",
            id=f"i{n % 3}",
            body=b"" if n % 7 == 0 else b'{"n":%d,"more":[%d]}' % (n, n),
            operation=Operation.DELETE if n % 7 == 0 else Operation.REPLACE,
            committed_us=n * 1_000_000 - 10**16 * (n % 2),  # also before 1900
        )
        for n in range(begin, end)
    ]
    append_records(path, records, seal=seal)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """600 changes that are sealed, in two eras, and 100 that are not."""
    log = tmp_path / "log"
    a_log(log, {}, parts=2)
    append(log, 0, 400, seal=True)
    asyncio.run(replace_partitions(log, [WHOLE], [(0, 0, 127), (0, 128, 255)]))
    append(log, 400, 600, seal=True)
    append(log, 600, 700)
    return log


def settings(path: Path, **more: Any) -> PipelineSettings:
    found = {"feed": f"eventlog:{path}", "directory": str(path.with_name("my tables"))}
    return PipelineSettings.model_validate(
        {**found, "max_changes": 150, "body_schema": "n INT", **more}
    )


def fill(spark: "SparkSession", wanted: PipelineSettings) -> Sequence[int]:
    """Fill the tables; return how many batches that took, by table."""
    keeping = TableQueries(spark=spark, settings=wanted, far=1)
    keeping.starters()
    queries = [query for x in keeping.fillers().values() if (query := run_to_end(x))]
    for query in queries:
        assert all(x.numInputRows <= 4 for x in query.recentProgress), "a row for a slice"
    return [len(query.recentProgress) for query in queries]


def follow(spark: "SparkSession", wanted: PipelineSettings) -> Sequence[int]:
    """Bring the tables up to date through the source; return how many changes it read."""
    starters = TableQueries(spark=spark, settings=wanted, once=True).starters()
    queries = [run_to_end(start) for start in starters.values()]
    return [sum(x.numInputRows for x in query.recentProgress) for query in queries if query]


def assert_as_through_the_source(spark: "SparkSession", wanted: PipelineSettings) -> None:
    """Compare the tables with those of another pipeline, which was never filled."""
    other = wanted.model_copy(update={"directory": f"{wanted.directory} of a stream"})
    follow(spark, other)
    for name in wanted.tables:
        assert rows_of(wanted.table(name)) == rows_of(other.table(name))


def test_tables_are_filled_up_to_the_border_and_go_on_through_the_source(
    spark: "SparkSession", path: Path
) -> None:
    wanted = settings(path)
    assert [n >= 4 for n in fill(spark, wanted)] == [True, True]
    assert len(rows_of(wanted.table("changes"))) == 600
    assert follow(spark, wanted) == [100, 100]
    assert fill(spark, wanted) == [], "nothing is sealed that they have not"
    assert_as_through_the_source(spark, wanted)
    assert len(rows_of(wanted.table("changes"))) == 700
    append(path, 700, 800, seal=True)
    assert len(fill(spark, wanted)) == 2
    changes = wanted.table("changes")
    assert read_by_duckdb(changes) == rows_of(changes)
    assert_as_through_the_source(spark, wanted)


def test_a_table_that_is_not_far_behind_or_begins_now_is_not_filled(
    spark: "SparkSession", path: Path
) -> None:
    for keeping in (
        TableQueries(spark=spark, settings=settings(path), far=601),
        TableQueries(spark=spark, settings=settings(path, start="now"), far=1),
    ):
        keeping.starters()
        assert [x() for x in keeping.fillers().values()] == [None, None]


class Died(Exception):
    """The process died here, as far as the files of Spark and of the table can tell."""


def dying(call: Callable[..., Any], *, on: int, after: bool) -> Callable[..., Any]:
    calls = iter(range(1, 100))

    def called(*given: Any, **named: Any) -> Any:
        if next(calls) != on:
            return call(*given, **named)
        if after:
            call(*given, **named)
        raise Died

    return called


STEPS: dict[str, tuple[Any, str, bool]] = {
    "the plan is logged": (filling, "changes_of", False),
    "files are written": (filling, "append_once", False),
    "the table is committed": (filling, "append_once", True),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_fill_that_dies_at_a_step_goes_on_as_a_fill_or_as_a_stream(
    spark: "SparkSession", path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    owner, name, after = STEPS[step]
    wanted = settings(path, latest={"enabled": False})
    for _ in range(2):  # the second time, once what died before has been repeated
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), on=2, after=after))
            with pytest.raises(StreamingQueryException, match="Died"):
                fill(spark, wanted)
        begun, done = (batches(wanted, x) for x in ("offsets", "commits"))
        assert len(begun) == len(done) + 1, "Spark does not know of the last batch"
        append(path, 700 + 30 * len(begun), 730 + 30 * len(begun), seal=True)
    follow(spark, wanted)
    assert_as_through_the_source(spark, wanted)
    assert len(rows_of(wanted.table("changes"))) == 760


def batches(wanted: PipelineSettings, folder: str) -> Sequence[Path]:
    found = (Path(wanted.checkpoint("changes")) / folder).glob("[0-9]*")
    return sorted(found, key=lambda x: int(x.name))


def test_a_batch_of_a_stream_that_is_repeated_by_a_fill_is_in_the_tables_once(
    spark: "SparkSession", path: Path
) -> None:
    wanted = settings(path, latest={"enabled": False})
    follow(spark, wanted)
    last = batches(wanted, "commits")[-1]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    append(path, 700, 800, seal=True)
    assert fill(spark, wanted) == [2]
    assert_as_through_the_source(spark, wanted)


def test_what_a_fill_left_behind_is_removed_by_upkeep(
    spark: "SparkSession", path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = {"compact_every": 2, "keep_files": "1h"}
    wanted = settings(path, latest={"enabled": False}, **upkeep)
    with monkeypatch.context() as patch:
        patch.setattr(filling, "append_once", dying(append_once, on=1, after=False))
        with pytest.raises(StreamingQueryException, match="Died"):
            fill(spark, wanted)
    (left,) = Path(wanted.table("changes")).glob("fill-*")
    written = next(left.glob("*.parquet"))
    half = left / "_temporary/0/task" / written.name  # as of a task that was killed
    half.parent.mkdir(parents=True)
    half.write_bytes(b"PAR1")
    for x in (*left.glob("*.parquet"), half):
        os.utime(x, (time.time() - 7200,) * 2)
    fill(spark, wanted)
    assert not [*left.rglob("*.parquet")]
    follow(spark, wanted)
    assert_as_through_the_source(spark, wanted)
