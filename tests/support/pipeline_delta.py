"""Two pipelines over one log, in a process of its own whose Spark has Delta.

The first is run after each of three rounds of changes, and merges in Spark but for the second
time; then older changes are merged once more. The other reads all at once, and merges here.
The jars come as JSON on standard input.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from changefeed.feeds.feed import Operation
from changefeed.log.records import Record
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.tables.latest import MERGE
from changefeed.pipeline.tables.merge import has_delta, merge_in_spark
from changefeed.pipeline.tables.queries import TableQueries
from tests.support.pipeline_feeds import a_log, append_records
from tests.support.spark_queries import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES: Final = ("latest", "hourly")
DIRECTORIES: Final = ("spark", "here")
_CONF: Final = {
    "spark.databricks.delta.vacuum.logging.enabled": "true",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_HOURLY: Final = """
SELECT window.start AS window_start, value.who.name AS who,
       count(*) AS changes, sum(value.n) AS total
FROM changes
GROUP BY window(committed_at, '1 hour'), value.who.name
"""
_HOUR: Final = 3_600_000_000


def rounds() -> Sequence[Sequence[Record]]:
    """Return changes that insert, replace, delete, bring back, fit and do not fit."""

    def put(key: str, body: str, hour: int) -> Record:
        return Record(
            key=key,
            body=body.encode(),
            operation=Operation.REPLACE,
            committed_us=hour * _HOUR,
        )

    gone = [Record(key=x, operation=Operation.DELETE, committed_us=_HOUR) for x in "ab"]
    return [
        [put(x, '{"n": 1, "who": {"name": "me"}}', 0) for x in "abcd"],
        [*gone, put("c", '{"n": "x"}', 1), put("e", '{"n": 5, "new": [1]}', 1)],
        [put("a", '{"n": 7, "who": {"name": "ß`"}}', 2), put("d", "[]", 0), gone[1]],
    ]


def settings(home: Path, directory: str) -> PipelineSettings:
    figures = {"name": "hourly", "select": _HOURLY}
    return PipelineSettings.model_validate(
        {
            "feed": f"eventlog:{home / 'log'}",
            "directory": str(home / directory),
            "body_schema": "n INT, who STRUCT<name: STRING>",
            "changes": {"enabled": False},
            "compact_every": 4,  # the third round: the first batch only says where it begins
            "aggregates": [figures],
        }
    )


def kept(spark: "SparkSession", wanted: PipelineSettings) -> None:
    starters = TableQueries(spark=spark, settings=wanted, once=True).starters()
    for start in starters.values():
        run_to_end(start)


def write_down(spark: "SparkSession", wanted: PipelineSettings, name: str) -> None:
    """Write what Spark's own Delta reads of a table to ``read``, beside its directory."""
    rows = spark.read.format("delta").load(wanted.table(name)).toArrow()
    place = Path(wanted.directory).with_name("read") / Path(wanted.directory).name
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, place / name)


def main(home: Path, jars: Sequence[str]) -> None:
    a_log(home / "log", {}, parts=2)
    without = patch("changefeed.pipeline.tables.merge.has_delta", return_value=False)
    with spark_session("delta", {**_CONF, "spark.jars": ",".join(jars)}) as spark:
        for number, records in enumerate(rounds()):
            append_records(home / "log", records)
            with without if number == 1 else nullcontext():
                kept(spark, settings(home, "spark"))
        latest = settings(home, "spark").table("latest")
        assert has_delta(spark, latest), "the jars were not found by Spark"
        rows = spark.read.format("delta").load(latest)
        merge_in_spark(latest, rows.withColumn("sequence", F.lit(0).cast("bigint")), MERGE)
        with without:
            kept(spark, settings(home, "here"))
        for directory in DIRECTORIES:
            for name in NAMES:
                write_down(spark, settings(home, directory), name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.load(sys.stdin))
