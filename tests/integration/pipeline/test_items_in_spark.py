"""Items by query as Spark reads them: its own filters, its schemas, its second tries."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from pyspark.errors import AnalysisException

from changefeed.pipeline.items.spark import ItemSource
from changefeed.pipeline.source.body_schema import with_bodies
from changefeed.runtime.errors import UserError
from tests.support.pipeline_cosmos import ServedCosmos, served_cosmos
from tests.support.processes import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHING = "spark.sql.python.filterPushdown.enabled"
SCHEMA = (
    "id STRING, text STRING, whole INT, large BIGINT, real DOUBLE, narrow FLOAT, yes BOOLEAN, "
    "exact DECIMAL(10,2), day DATE, at TIMESTAMP, inside STRUCT<city: STRING, n: INT>, "
    "list ARRAY<INT>"
)
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 5, 5.5, 0.1, 1 << 31, (1 << 53) + 2, 1e300, -0.0),
    *("", "a", "A", "ab", "5", "true", "é", "\U0001f600", "\uff5e", "2026-01-31", "NaN"),
    *("2026-01-31T12:00:00Z", "2026-01-31T13:00:00.5+01:00", [], [1, 2], ["x"], {}),
    *({"city": "a", "n": 1}, {"city": 5, "n": "x"}, {"city": None}, {"n": 1.0}),
]
CONDITIONS = (
    *(
        "text = 'a'",
        "text <> 'a'",
        "text >= 'a'",
        "text > '\uff5e'",
        "text = '5'",
        "text IS NULL",
    ),
    *("text LIKE 'a%'", "text NOT LIKE '%1%'", "text NOT IN ('a', '5')", "NOT (text <=> 'a')"),
    *("text LIKE 'a%' OR whole > 0", "upper(text) = 'A'", "whole <> 1", "whole IN (0, 5)"),
    *("whole IS NULL", "whole > 0 AND text IS NULL", "whole NOT IN (1, NULL)"),
    *("large > 9007199254740992", "large = 9007199254740994", "large < 9007199254740993"),
    *("real > 0.1D", "real < CAST('NaN' AS DOUBLE)", "real = 0D", "narrow = 0.1F", "NOT yes"),
    *("exact = 0.10", "day = DATE'2026-01-31'", "at > TIMESTAMP'2026-01-31T11:59:59Z'"),
    *("inside.city = '5'", "inside.n IS NULL", "inside IS NOT NULL", "list IS NULL"),
)


@pytest.fixture(scope="module")
def cosmos() -> Iterator[ServedCosmos]:
    with served_cosmos(ranges=2) as made:
        yield made


def items(spark: "SparkSession", cosmos: ServedCosmos, **options: str) -> "DataFrame":
    schema = options.pop("schema", None)
    reader = spark.read.format("changefeed_items").options(feed=cosmos.address(None), **options)
    return (reader if schema is None else reader.schema(schema)).load()


def test_what_is_pushed_finds_the_rows_that_sparks_own_filters_find(
    spark: "SparkSession", cosmos: ServedCosmos
) -> None:
    names = [x.split()[0] for x in SCHEMA.split(", ") if x[0] != "n"][1:]
    for n, value in enumerate(VALUES):
        cosmos.do(cosmos.world.put(f"v{n}", f"k{n}", **dict.fromkeys(names, value)))
    cosmos.do(cosmos.world.put("lacks all", "k"))
    every = spark.createDataFrame(items(spark, cosmos, schema=SCHEMA).collect(), SCHEMA).cache()
    assert every.count() == len(VALUES) + 1
    spark.conf.set(PUSHING, "true")
    try:
        for condition in CONDITIONS:
            pushed = items(spark, cosmos, schema=SCHEMA, pushFilters="true").where(condition)
            rows = sorted(map(str, pushed.collect()))
            assert rows == sorted(map(str, every.where(condition).collect())), condition
    finally:
        spark.conf.unset(PUSHING)


def test_the_columns_of_changes_are_there_and_fields_are_as_in_parsed_bodies(
    spark: "SparkSession", cosmos: ServedCosmos
) -> None:
    for n in range(5):
        inside = {"city": f"c{n}", "n": n}
        cosmos.do(cosmos.world.put(f"w{n}", "whole", whole=n, text="t", inside=inside))
    of_key = {"partitionKey": "whole"}
    bodies = items(spark, cosmos, **of_key)
    assert bodies.columns == ["key", "id", "body", "committed_at"]
    parsed = with_bodies(bodies, SCHEMA).select("value.*").orderBy("id").collect()
    assert len(parsed) == 5
    fields = items(spark, cosmos, schema=SCHEMA, **of_key)
    assert fields.orderBy("id").collect() == parsed
    changes = spark.read.format("changefeed").option("feed", cosmos.address()).load()
    of_feed = changes.where("key = 'whole'").select(*bodies.columns).drop("body")
    assert sorted(of_feed.collect()) == sorted(bodies.drop("body").collect())


def asking(url: str) -> list[int]:
    """Return the Python workers of Spark that are connected to a server of this process.

    No others: Spark takes an idle one for alive until its parent has cleared it away, and
    gives up a task that was given four such; and it does not plan twice.
    """
    port = f":{urlsplit(url).port:04X}"
    lines = [x.split() for x in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{x[9]}]" for x in lines if x[2].endswith(port)}
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if b"pyspark.worker" in (process / "cmdline").read_bytes().split(b"\0"):
                opened = {str(x.readlink()) for x in (process / "fd").iterdir()}
                found += [int(process.name)] if sockets & opened else []
    return found


def test_a_task_that_is_killed_is_tried_again_and_gives_each_item_once(
    spark: "SparkSession", cosmos: ServedCosmos
) -> None:
    cosmos.put(50, key="killed")
    query = "SELECT c.id FROM c WHERE STARTSWITH(c.pk, 'killed')"
    frame = items(spark, cosmos, schema="id STRING", query=query)
    slow = {"effect": "delay", "operation": "query_items", "seconds": 60.0, "times": 2}
    cosmos.do(cosmos.world.fault(**slow))
    rows: list[str] = []
    reading = threading.Thread(target=lambda: rows.extend(x.id for x in frame.collect()))
    reading.start()
    killed = set[int]()
    while reading.is_alive() and len(killed) < 2:  # a task for each range
        for worker in {*asking(cosmos.world.url)} - killed:
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
        reading.join(0.1)
    cosmos.do(cosmos.world.no_faults())
    reading.join(PATIENCE)
    assert killed
    assert sorted(rows) == sorted(f"i{n}" for n in range(50))


def test_a_stream_of_items_and_items_of_a_log_are_refused_with_advice(
    spark: "SparkSession", cosmos: ServedCosmos
) -> None:
    source = ItemSource({"feed": cosmos.address(None)})
    with pytest.raises(UserError, match="Stream changes with the format changefeed"):
        source.streamReader(source.schema())
    with pytest.raises(AnalysisException, match="read them with the format changefeed"):
        spark.read.format("changefeed_items").options(feed="eventlog:/log").load()
