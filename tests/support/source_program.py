"""A program that reads an event log, and items of a container, with whatever Spark is first on
the path of imports.

``python -m tests.support.source_program FOLDER [REMOTE]`` prints one JSON object. ``REMOTE`` is
the address of a server of Spark Connect; without it, Spark runs here.
"""

import json
import sys
from pathlib import Path

from azure.cosmos import PartitionKey
from pyspark import __version__
from pyspark.sql import SparkSession, datasource

from changefeed import pipeline
from changefeed.pipeline.source.body_schema import with_bodies
from changefeed.pipeline.source.spark import register, stream
from cosmos_emulator.testing import account_in_thread
from tests.support.pipeline_cosmos import written
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


def items(spark: SparkSession) -> list[object]:
    """Return what is found of items by a schema, by a pushed filter, by ids, and by a query."""
    made = [{"id": f"i{n}", "pk": f"k{n % 3}", "n": n, "of": {"n": [n]}} for n in range(60)]
    pushes = {"pushFilters": "true"} if hasattr(datasource, "Filter") else {}
    if pushes:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with account_in_thread() as account:
        feed = written(account.url, PartitionKey("/pk"), made)
        account.split("d", "k", range="0")

        def rows(schema: str | None = None, where: str = "true", **options: str) -> int:
            read = spark.read.format("changefeed_items").options(**feed, **options)
            frame = (read if schema is None else read.schema(schema)).load()
            return frame.where(where).count()

        nested = "id STRING, n INT, of STRUCT<n: ARRAY<INT>>"
        return [
            rows(),
            rows(nested, "n >= 50 AND of.n[0] = n", **pushes),
            rows("id STRING", partitionKey="k1", itemIds='["i1", "i2", "i4"]'),
            rows("n INT", query="SELECT c.n FROM c WHERE c.n < 7"),
        ]


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
    found["items"] = items(spark)
    spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])) + "\n")
