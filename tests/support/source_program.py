"""A program that reads an event log with whatever Spark is first on the path of imports.

``python -m tests.support.source_program FOLDER [REMOTE]`` prints one JSON object. ``REMOTE`` is
the address of a server of Spark Connect; without it, Spark runs here.
"""

import json
import sys
from pathlib import Path

from pyspark import __version__
from pyspark.sql import SparkSession

from changefeed import pipeline
from changefeed.pipeline.source.body_schema import with_bodies
from changefeed.pipeline.source.spark import register, stream
from tests.support.pipeline_feeds import a_log, append_to


def drained(spark: SparkSession, feed: str, folder: Path) -> tuple[int, int]:
    """Write what is there now as Parquet; return how many rows there are, and how many of
    them differ.
    """
    changes = with_bodies(stream(spark, feed), "n INT").select("range", "sequence", "value.n")
    writer = changes.writeStream.format("parquet").trigger(availableNow=True)
    placed = writer.option("path", f"{folder}/rows")
    placed.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows").where("n IS NOT NULL")
    return rows.count(), rows.distinct().count()


def session(remote: str | None) -> SparkSession:
    builder = SparkSession.Builder().config("spark.sql.session.timeZone", "UTC")
    if remote is not None:
        return builder.remote(remote).getOrCreate()
    return builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()


def main(folder: Path, remote: str | None = None) -> dict[str, object]:
    feed = a_log(folder / "log", {"a": 100, "b": 50})
    spark = session(remote)
    register(spark)
    batch = spark.read.format("changefeed").options(feed=feed, endingAt="now").load()
    found: dict[str, object] = {"spark": __version__, "batch": batch.count()}
    found["first"] = drained(spark, feed, folder)
    append_to(folder / "log", {"a": 10})
    found["second"] = drained(spark, feed, folder)
    found["nothing new"] = drained(spark, feed, folder)
    found["read"] = pipeline.read(spark, feed).count()
    spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])) + "\n")
