"""The tables that a pipeline keeps, read back and compared with what was appended."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from feeds.eventlog import EventLogWriter, Record
from feeds.eventlog.succession import replace_partitions
from feeds.feed import Operation, RangeId
from pipeline.settings import PipelineSettings
from pipeline.tables.keeping import Keeping
from tests.support.pipeline_feeds import a_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.filterwarnings("default"),  # pyspark's own are not ours to mend
]

PATIENCE = 90
WHOLE = RangeId("e1.p00.v00-ff")


def append(path: Path, *records: Record) -> None:
    async def write() -> None:
        async with EventLogWriter.open(path, synchronous="off") as writer:
            await writer.append(records)

    asyncio.run(write())


def settings(tmp_path: Path, **more: Any) -> PipelineSettings:
    found = {"feed": f"eventlog:{tmp_path / 'log'}", "directory": str(tmp_path / "tables")}
    return PipelineSettings.model_validate({**found, **more})


def kept(spark: "SparkSession", wanted: PipelineSettings) -> None:
    starters = Keeping(spark=spark, settings=wanted, once=True).starters()
    for query in [start() for start in starters.values()]:
        assert query.awaitTermination(PATIENCE)


def table(wanted: PipelineSettings, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(
        DeltaTable(wanted.table(name)).to_pyarrow_table()
    ).to_pylist()
    return found


def put(key: str, body: bytes, at: int = 0) -> Record:
    return Record(key=key, body=body, operation=Operation.REPLACE, committed_us=at * 1_000_000)


def test_every_change_is_appended_and_the_latest_of_each_item_is_kept(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {"a": 3, "b": 2}, parts=2)
    wanted = settings(tmp_path, max_changes=4, body_schema="n INT")
    kept(spark, wanted)
    append(
        tmp_path / "log",
        put("a", b'{"n": 70}'),
        Record(key="b", operation=Operation.DELETE),
        put("c", b'{"n": "many"}'),
    )
    kept(spark, wanted)
    changes = table(wanted, "changes")
    assert len(changes) == len({(x["range"], x["sequence"]) for x in changes}) == 8
    latest = {x["key"]: x for x in table(wanted, "latest")}
    assert {key: (x["value"]["n"] if x["value"] else None) for key, x in latest.items()} == {
        "a": 70,
        "b": None,
        "c": None,
    }
    assert {key: x["deleted"] for key, x in latest.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }
    assert {key: x["rescued"] for key, x in latest.items()} == {
        "a": None,
        "b": None,
        "c": '{"n": "many"}',
    }


def test_a_deleted_item_stays_deleted_when_all_is_merged_again_from_the_beginning(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {"a": 2}, parts=1)
    append(tmp_path / "log", Record(key="a", operation=Operation.DELETE))
    changes = {"enabled": False}
    kept(spark, settings(tmp_path, changes=changes))
    (tmp_path / "tables/_checkpoints").rename(tmp_path / "lost")
    again = settings(tmp_path, changes=changes, max_changes=1)
    kept(spark, again)
    (row,) = table(again, "latest")
    assert (row["deleted"], row["sequence"], row["body"]) == (True, 3, None)


def test_the_latest_is_that_of_the_newest_era_though_its_sequences_begin_again(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {"a": 50}, parts=1)
    wanted = settings(tmp_path, changes={"enabled": False})
    kept(spark, wanted)
    asyncio.run(replace_partitions(tmp_path / "log", [WHOLE], [(0, 0, 255)]))
    append(tmp_path / "log", put("a", b'{"n": "new"}'))
    kept(spark, wanted)
    (row,) = table(wanted, "latest")
    assert (row["sequence"], row["generation"], row["body"]) == (1, 1, '{"n": "new"}')


def hourly(rows: Sequence[dict[str, Any]]) -> dict[tuple[int, str], tuple[int, int]]:
    return {(x["window_start"].hour, x["who"]): (x["changes"], x["total"]) for x in rows}


def test_figures_of_each_window_grow_over_several_runs(
    spark: "SparkSession", tmp_path: Path
) -> None:
    a_log(tmp_path / "log", {}, parts=2)
    hour = 3600
    append(
        tmp_path / "log",
        put("a", b'{"n": 1}', 0),
        put("a", b'{"n": 2}', 10),
        put("b", b'{"n": 5}', 20),
    )
    figures = {
        "name": "hourly",
        "window": "1 hour",
        "by": {"who": "key"},
        "sums": {"total": "value.n"},
        "where": "value.n < 100",
    }
    off = {"enabled": False}
    wanted = settings(
        tmp_path, changes=off, latest=off, body_schema="n INT", aggregates=[figures]
    )
    kept(spark, wanted)
    assert hourly(table(wanted, "hourly")) == {(0, "a"): (2, 3), (0, "b"): (1, 5)}
    append(
        tmp_path / "log",
        put("a", b'{"n": 4}', hour),
        put("a", b'{"n": 8}', 30),  # an hour late: without a watermark it counts
        put("b", b'{"n": 100}', 30),
    )
    kept(spark, wanted)
    assert hourly(table(wanted, "hourly")) == {
        (0, "a"): (3, 11),
        (0, "b"): (1, 5),
        (1, "a"): (1, 4),
    }


def test_parquet_is_written_by_spark_itself(spark: "SparkSession", tmp_path: Path) -> None:
    a_log(tmp_path / "log", {"a": 3})
    wanted = settings(tmp_path, changes={"format": "parquet"}, latest={"enabled": False})
    kept(spark, wanted)
    assert spark.read.parquet(wanted.table("changes")).count() == 3
