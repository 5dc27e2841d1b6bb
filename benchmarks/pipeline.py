"""The Spark source and the tables against what Spark itself reads and writes.

Not among the benchmarks of ``make bench``, because it needs the extra ``spark``:
``python -m benchmarks.pipeline``. Everything runs in one session, warmed up before, and a
ratio is between two things measured one right after the other.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from feeds.eventlog import EventLogWriter
from pipeline.session import spark_session
from pipeline.settings import PipelineSettings
from pipeline.tables.keeping import Keeping

from .logs import make_log, records
from .result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHANGES = 500_000
_RANGES = 8
_TIMES = 3
_BATCHES = 25
_LATENCIES = 10
_PATIENCE = 600


def measure() -> Sequence[Result]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        spark_session("benchmark") as spark,
    ):
        home = Path(directory)
        asyncio.run(make_log(home / "log", parts=_RANGES, changes=_CHANGES))
        _drained(_source(spark, home / "log").limit(1000))
        return [
            *_reading(spark, home),
            *_overheads(spark, home),
            *_tables(spark, home),
            _latency(spark, home),
        ]


def _reading(spark: "SparkSession", home: Path) -> Iterator[Result]:
    changes = _source(spark, home / "log")
    changes.write.parquet(str(home / "parquet"))
    changes.write.json(str(home / "json"))
    parquet = spark.read.parquet(str(home / "parquet"))
    lines = spark.read.schema(changes.schema).json(str(home / "json"))
    rate = _rate(changes)
    others = {"parquet": _rate(parquet), "json_lines": _rate(lines)}
    yield Result(name="pipeline.source", value=rate, unit="changes/s")
    keys = _source(spark, home / "log").select("range", "sequence", "key", "body")
    narrow = (
        spark.read.format("changefeed")
        .options(feed=f"eventlog:{home / 'log'}", columns=",".join(keys.columns))
        .load()
    )
    yield Result(
        name="pipeline.source.four_columns",
        value=(few := _rate(narrow)),
        unit="changes/s",
        against="pipeline.source",
        ratio=few / rate,
    )
    for name, other in others.items():
        yield Result(
            name=f"pipeline.{name}",
            value=other,
            unit="rows/s",
            against="pipeline.source",
            ratio=other / rate,
        )


def _overheads(spark: "SparkSession", home: Path) -> Iterator[Result]:
    for ranges in (1, 8, 32):
        log = home / f"log-{ranges}"
        asyncio.run(make_log(log, parts=ranges, changes=ranges * 10 * _BATCHES))
        query = (
            spark.readStream.format("changefeed")
            .options(feed=f"eventlog:{log}", maxChangesPerTrigger=str(ranges * 10))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(home / f"checkpoint-{ranges}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(_PATIENCE)
        took = [x.batchDuration for x in query.recentProgress if x.numInputRows]
        yield Result(name=f"pipeline.batch.{ranges}_ranges", value=median(took), unit="ms")


def _tables(spark: "SparkSession", home: Path) -> Iterator[Result]:
    for name in ("changes", "latest"):
        settings = _settings(home / "log", home / f"tables-{name}", name)
        starters = Keeping(spark=spark, settings=settings, once=True).starters()
        began = time.perf_counter()
        starters[name]().awaitTermination(_PATIENCE)
        seconds = time.perf_counter() - began
        yield Result(name=f"pipeline.{name}", value=_CHANGES / seconds, unit="changes/s")


def _latency(spark: "SparkSession", home: Path) -> Result:
    """From an append to the commit that has it, with an interval of zero."""
    log = home / "log-latency"
    asyncio.run(make_log(log, parts=_RANGES, changes=0))
    settings = _settings(log, home / "tables-latency", "changes")
    query = Keeping(spark=spark, settings=settings).starters()["changes"]()
    took: list[float] = []
    try:
        for n in range(_LATENCIES + 2):
            before = DeltaTable(settings.table("changes")).version()
            asyncio.run(_append(log, n))
            began = time.perf_counter()
            while DeltaTable(settings.table("changes")).version() == before:
                time.sleep(0.005)
                assert time.perf_counter() - began < _PATIENCE, "nothing was committed"
            took.append(time.perf_counter() - began)
    finally:
        query.stop()
    return Result(name="pipeline.latency", value=median(took[2:]), unit="s")


async def _append(log: Path, n: int) -> None:
    async with EventLogWriter.open(log, synchronous="off") as writer:
        await writer.append(records(n, 1))


def _settings(log: Path, directory: Path, only: str) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "feed": f"eventlog:{log}",
            "directory": str(directory),
            "changes": {"enabled": only == "changes", "interval": 0},
            "latest": {"enabled": only == "latest", "interval": 0},
        }
    )


def _source(spark: "SparkSession", log: Path) -> "DataFrame":
    return spark.read.format("changefeed").option("feed", f"eventlog:{log}").load()


def _rate(rows: "DataFrame") -> float:
    return _CHANGES / min(_seconds(lambda: _drained(rows)) for _ in range(_TIMES))


def _drained(rows: "DataFrame") -> None:
    rows.write.format("noop").mode("overwrite").save()


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    for found in measure():
        ratio = "" if found.ratio is None else f"  {found.ratio:.2f} x {found.against}"
        print(f"{found.name:32} {found.value:12,.3f} {found.unit}{ratio}")
