"""Cosmos DB on Spark, beside another source in Python and Azure's client for Java.

All read the same items from their beginning: 8 ranges, from a proxy that answers pages from
memory, so that no endpoint is measured. The sources run in one Spark, by turns, and are timed
as Spark times them: a batch from its planning to its last row, a stream by its batches. Of all
versions both have a start from before the changes. Java's client, which is below Azure's
connector for Spark, runs without Spark: pages of Jackson's objects in two threads.

``.cpu`` is what Spark and its Python processes have used: it holds on a busy machine, too.
It needs Java, Maven and Go, and ``uv pip install --group rival``.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from changefeed.feeds.cosmos.address import EMULATOR_KEY, CosmosAccess
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.planning import first_offset
from changefeed.pipeline.source.spark import stream

from .endpoint import DATABASE, TRANSACTION, endpoint, make_container, replaying, write_items
from .java_process import ask, java_process
from .result import Result, by_rounds
from .spark_timing import cpu_of, seconds_of, seconds_of_batches

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from pyspark.sql import DataFrame, SparkSession

_ITEMS: Final = 100_000
_RANGES: Final = 8
_ROUNDS: Final = 5
_WARM_UP: Final = 2
_TASKS: Final = 2  # at once
_QUARTER: Final = _ITEMS // TRANSACTION // 4
"""In LSNs, which a batch is bounded by."""
_GROUP: Final = "spark-cosmos"
_CPU: Final = "CPU s for 100,000"
_LATEST: Final = "latest"
_VERSIONS: Final = "versions"
_TYPES: Final = "pk STRING, n INT, pad STRING"

# What is measured, beside what, and how many times as fast it is to be.
_TABLE: Final = (
    ("batch", "rival_batch", 5.0),
    ("stream", "rival_stream", 5.0),
    ("typed", "rival_typed", 3.0),
    ("three_columns", "rival_three_columns", 2.0),
    ("batch", "java_pages_of_1000", 1.3),
    ("batch", "java_pages_of_10000", 0.9),
    ("four_batches", "stream", 0.8),
    ("versions", "rival_versions", 4.0),
)

Frames = Mapping[str, Callable[[], "DataFrame"]]
"""What makes a batch or a stream of all items."""


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    async with endpoint() as emulator:
        await make_container(emulator, _LATEST, ranges=_RANGES, items=_ITEMS)
        await make_container(emulator, _VERSIONS, ranges=_RANGES, items=0)
        with (
            TemporaryDirectory(prefix="bench-") as place,
            spark_session("benchmark") as spark,
        ):
            home = Path(place)
            start = await asyncio.to_thread(_Sources(spark, emulator, home).begin)
            await write_items(emulator, _VERSIONS, _ITEMS)
            async with (
                replaying(emulator) as url,
                java_process(url, "Bulk", DATABASE, str(_TASKS)) as java,
            ):
                frames = _Sources(spark, url, home).frames(start)
                await asyncio.to_thread(_check, frames)
                rounds = [
                    await _round(spark, frames, java, home / f"{n}")
                    for n in range(_WARM_UP + _ROUNDS)
                ]
    return [*_results(rounds[_WARM_UP:])]


def _check(frames: Frames) -> None:
    for name, rows in frames.items():
        found = _ITEMS if rows().isStreaming else rows().count()
        assert found == _ITEMS, f"{name} found {found} rows"


def _results(rounds: Sequence[Mapping[str, float]]) -> Iterator[Result]:
    for name in dict.fromkeys(against for _, against, _ in _TABLE):
        yield by_rounds(_GROUP, rounds, name, "rows/s")
    for name, against, goal in _TABLE:
        yield by_rounds(_GROUP, rounds, name, "rows/s", against=against, goal=goal)
    for name, against, _ in _TABLE:
        if f"{against}.cpu" in rounds[0]:
            other = f"{against}.cpu"
            yield by_rounds(_GROUP, rounds, other, _CPU)
            yield by_rounds(_GROUP, rounds, f"{name}.cpu", _CPU, against=other)


async def _round(
    spark: "SparkSession", frames: Frames, java: "Process", home: Path
) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, rows in frames.items():
        before = cpu_of(spark)
        found[name] = _ITEMS / await asyncio.to_thread(_seconds, rows(), home / name)
        found[f"{name}.cpu"] = (cpu_of(spark) - before) * 100_000 / _ITEMS
    for page in (1000, 10_000):
        answer = await ask(java, f"{_LATEST} {page}")
        assert answer["changes"] == _ITEMS, f"Java found {answer['changes']} changes"
        found[f"java_pages_of_{page}"] = _ITEMS / answer["seconds"]
    return found


def _seconds(rows: "DataFrame", checkpoint: Path) -> float:
    if rows.isStreaming:
        batches = seconds_of_batches(rows, checkpoint)
        wanted = {"stream": 1, "four_batches": 4}.get(checkpoint.name, len(batches))
        assert len(batches) == wanted, f"{checkpoint.name} took {len(batches)} batches"
        return sum(batches)
    return seconds_of(rows)


class _Sources:
    """Ours and the rival, in one Spark."""

    def __init__(self, spark: "SparkSession", url: str, home: Path) -> None:
        self._spark, self._url = spark, url
        self._rival_of_versions = {
            "container": _VERSIONS,
            "change_feed_mode": "AllVersionsAndDeletes",
            "batch_checkpoint_location": str(home / "rival"),
        }

    def begin(self) -> str:
        """Let all versions begin now: return where ours do, and have the rival keep it."""
        rival = import_module("cosmosdb_datasource")
        self._spark.dataSource.register(rival.CosmosDBDataSource)
        seconds_of(self._rival(**self._rival_of_versions))
        rival.commit_batch_checkpoint(self._rival_of_versions["batch_checkpoint_location"])
        with closing(open_access(self._feed(_VERSIONS), cosmos=CosmosAccess())) as access:
            return first_offset(access, "now").as_text()

    def frames(self, start: str) -> Frames:
        spark, feed = self._spark, self._feed(_LATEST)
        ours, rival = self._ours, self._rival
        return {
            "batch": lambda: ours(feed),
            "rival_batch": lambda: rival(change_feed_mode="LatestVersion"),
            "stream": lambda: stream(spark, feed),
            "rival_stream": lambda: rival(spark.readStream, change_feed_mode="LatestVersion"),
            "four_batches": lambda: stream(spark, feed, maxChangesPerBatch=str(_QUARTER)),
            "typed": lambda: self._items(f"id STRING, {_TYPES}"),
            "rival_typed": lambda: rival(spark.read.schema(f"id STRING, {_TYPES}")),
            "three_columns": lambda: self._items("id STRING, pk STRING, n INT"),
            "rival_three_columns": lambda: rival(
                spark.read.schema("id STRING, pk STRING, n INT"),
                query="SELECT c.id, c.pk, c.n FROM c",
            ),
            "versions": lambda: ours(self._feed(_VERSIONS), startingAt=start),
            "rival_versions": lambda: rival(**self._rival_of_versions),
        }

    def _feed(self, container: str) -> str:
        mode = "?mode=all-versions" if container == _VERSIONS else ""
        return f"cosmos+{self._url}{DATABASE}/{container}{mode}"

    def _ours(self, feed: str, **options: str) -> "DataFrame":
        return self._spark.read.format("changefeed").options(feed=feed, **options).load()

    def _items(self, schema: str) -> "DataFrame":
        items = self._spark.read.format("changefeed_items").schema(schema)
        return items.options(feed=self._feed(_LATEST)).load()

    def _rival(self, reader: Any = None, **options: str) -> "DataFrame":
        where = {"endpoint": self._url, "account_key": EMULATOR_KEY, "database": DATABASE}
        named = {"container": _LATEST, **where, **options}
        found: DataFrame = (
            (reader or self._spark.read).format("cosmosdb").options(**named).load()
        )
        return found
