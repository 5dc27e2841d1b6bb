"""A program that reads a feed with credentials, and prints all that Spark and we can say of it.

``python -m tests.support.credential_program FOLDER``, with a JSON object on standard input:
the options of each way by its name. Tests start it, and look for what it must not say.
"""

import json
import pickle
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from changefeed import pipeline
from changefeed.pipeline.items.options import ItemOptions
from changefeed.pipeline.items.spark import ItemSource
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.spark import BatchReader, ChangefeedSource, StreamReader


def say(*what: object) -> None:
    sys.stdout.write(" ".join(map(str, what)) + "\n")


def show_batch(changes: DataFrame) -> None:
    changes.explain(True)
    say(changes.schema, changes)
    say("rows:", changes.count())


def show_stream(changes: DataFrame, checkpoint: Path) -> None:
    changes.explain(True)
    writer = changes.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination()
    finally:
        query.explain(True)
        say(query.recentProgress, query.status, query.exception())
        say([x.json for x in query.recentProgress])


def copied(made: object) -> object:
    """Return what a worker of Spark gets."""
    return pickle.loads(cloudpickle.dumps(made))  # type: ignore[no-untyped-call]


def show_objects(options: Mapping[str, str]) -> None:
    source, items = ChangefeedSource({**options}), ItemSource({**options})
    read, asked = Options.of(options), items.reader(items.schema())
    made = [read, source, items, ItemOptions.of(options)]
    made += [asked, BatchReader(read), StreamReader(read)]
    say([copied(x) for x in made])
    say([{**vars(x)} for x in made[4:]], made)


def show(spark: SparkSession, options: Mapping[str, str], folder: Path) -> None:
    """Show a stream, and what else reads where that could."""
    show_objects(options)
    try:
        show_stream(spark.readStream.format("changefeed").options(**options).load(), folder)
        show_batch(spark.read.format("changefeed").options(**options).load())
        show_batch(spark.read.format("changefeed_items").options(**options).load())
        given = {name: x for name, x in options.items() if name != "feed"}
        show_batch(pipeline.read(spark, options["feed"], **given))
    except Exception:  # noqa: BLE001 - whatever it is, it is printed
        say("failed:", traceback.format_exc())


def main(folder: Path, ways: Mapping[str, Mapping[str, str]]) -> None:
    events = folder / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
    }
    with spark_session("credentials", conf) as spark:
        spark.sparkContext.setLogLevel("INFO")
        for name, options in ways.items():
            say(f"way: {name}")
            show(spark, options, folder / name.replace(" ", "-"))
    for file in events.rglob("*"):
        if file.is_file():
            say(file.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.load(sys.stdin))
