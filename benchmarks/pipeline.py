"""The Spark source and the tables against what Spark itself reads, as streams.

Everything runs in one session. The source, Parquet and JSON lines are streams over the same
rows, read whole in one batch that nobody wants; they take turns, after a round to warm up,
and a ratio is the median of those of each round. What is timed is the batch as Spark times
it: from planning to its commit, without the start of the query.

Needs the extra ``spark``, and takes minutes where others take half of one.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from changefeed.feeds.eventlog.writer import EventLogWriter, compact_log
from changefeed.pipeline import read
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.source.record_batches import EVERYTHING
from changefeed.pipeline.source.spark import stream
from changefeed.pipeline.tables.queries import TableQueries

from .logs import make_log, records
from .result import Result, at_most, by_rounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHANGES = 500_000
_BACKLOG = 1_000_000  # a whole batch of the default size
_RANGES = 8
_ROUNDS = 5  # after one to warm up
_BATCHES = 30
_LATENCIES = 10
_SKIPPED = 5  # the first batches and appends, in which Java still compiles
_PATIENCE = 600
_FEW = "range,sequence,key,body"

Rates = Mapping[str, float]


def measure() -> Sequence[Result]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        spark_session("benchmark") as spark,
    ):
        home = Path(directory)
        asyncio.run(make_log(home / "log", parts=_RANGES, changes=_CHANGES))
        return [
            *_reading(spark, home),
            *_backlog(spark, home),
            *_filled(spark, home),
            *(_overhead(spark, home, ranges) for ranges in (1, 8, 32)),
            *(_table(spark, home, name) for name in ("changes", "latest")),
            _latency(spark, home),
        ]


def _reading(spark: "SparkSession", home: Path) -> Iterator[Result]:
    streams = _streams(spark, home)
    rounds = [_round(streams, home / f"round-{n}") for n in range(_ROUNDS + 1)][1:]
    yield by_rounds("pipeline", rounds, "parquet", "rows/s")
    yield by_rounds("pipeline", rounds, "json_lines", "rows/s", against="parquet")
    yield by_rounds("pipeline", rounds, "source", "rows/s", against="parquet", goal=0.9)
    yield by_rounds("pipeline", rounds, "source_of_four_columns", "rows/s", against="source")


def _streams(spark: "SparkSession", home: Path) -> Mapping[str, Callable[[], "DataFrame"]]:
    """Return what makes a stream of the same rows, by where they come from."""
    log, parquet, lines = home / "log", str(home / "parquet"), str(home / "json")
    rows = spark.read.format("changefeed").option("feed", f"eventlog:{log}").load()
    rows.write.parquet(parquet)
    rows.write.json(lines)
    files = spark.readStream.schema(rows.schema)
    return {
        "parquet": lambda: files.parquet(parquet),
        "json_lines": lambda: files.json(lines),
        "source": lambda: _source(spark, log),
        "source_of_four_columns": lambda: _source(spark, log, columns=_FEW),
    }


def _round(streams: Mapping[str, Callable[[], "DataFrame"]], home: Path) -> Rates:
    return {name: _CHANGES / sum(_batches(x(), home / name)) for name, x in streams.items()}


def _backlog(spark: "SparkSession", home: Path) -> Iterator[Result]:
    """What a batch takes that reads a sealed log, by turns with one that reads Parquet."""
    log = home / "sealed"
    shutil.copytree(home / "log", log)
    asyncio.run(compact_log(log))
    batches: Mapping[str, DataFrame] = {
        "parquet_in_batches": spark.read.parquet(str(home / "parquet")),
        "backlog": read(spark, f"eventlog:{log}"),
        "backlog_through_the_source": spark.read.format("changefeed").load(
            feed=f"eventlog:{log}"
        ),
    }
    rounds = [{name: _rate(x) for name, x in batches.items()} for _ in range(_ROUNDS + 1)][1:]
    yield by_rounds("pipeline", rounds, "parquet_in_batches", "rows/s")
    against = "parquet_in_batches"
    yield by_rounds("pipeline", rounds, "backlog", "rows/s", against=against, goal=0.9)
    yield by_rounds("pipeline", rounds, "backlog_through_the_source", "rows/s", against=against)


def _filled(spark: "SparkSession", home: Path) -> Iterator[Result]:
    """Filling tables from a sealed log, by turns with the same rows as one Parquet table.

    Each is one batch of the default size, as Spark times it. That of Parquet is a stream of
    files into files of the same kind; for ``latest`` into the same merge.
    """
    parquet, log = str(home / "parquet-generation"), home / "backlog"
    asyncio.run(make_log(log, parts=_RANGES, changes=_BACKLOG))
    asyncio.run(compact_log(log))
    read(spark, f"eventlog:{log}", columns=",".join(EVERYTHING)).write.parquet(parquet)
    for name in ("changes", "latest"):
        rounds = [
            _fill_round(spark, home, name, parquet, home / f"fill-{name}-{n}")
            for n in range(_ROUNDS + 1)
        ][1:]
        against = f"{name}_of_parquet"
        yield by_rounds("pipeline", rounds, against, "rows/s")
        filled = f"{name}_filled"
        yield by_rounds("pipeline", rounds, filled, "rows/s", against=against, goal=0.9)


def _fill_round(
    spark: "SparkSession", home: Path, name: str, parquet: str, directory: Path
) -> Rates:
    settings = _settings(home / "backlog", directory, name)
    keeping = TableQueries(spark=spark, settings=settings)
    keeping.starters()
    filler = keeping.fillers()[name]
    query = filler()
    assert query is not None, "there is nothing to fill"
    filled = _took(query)
    other = _settings(home / "backlog", directory.with_name(f"{directory.name}-parquet"), name)
    keeping = TableQueries(spark=spark, settings=other)
    keeping.starters()
    filler = keeping.fillers()[name]
    rows = spark.readStream.schema(spark.read.parquet(parquet).schema).parquet(parquet)
    plain = _took(
        rows.writeStream.foreachBatch(filler.table)
        .option("checkpointLocation", other.checkpoint(name))
        .trigger(availableNow=True)
        .start()
    )
    return {f"{name}_filled": _BACKLOG / filled, f"{name}_of_parquet": _BACKLOG / plain}


def _took(query: "StreamingQuery") -> float:
    """Return the seconds of all batches."""
    assert query.awaitTermination(_PATIENCE), "it takes too long"
    return sum(x.batchDuration for x in query.recentProgress) / 1000


def _rate(rows: "DataFrame") -> float:
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return _CHANGES / (time.perf_counter() - began)


def _overhead(spark: "SparkSession", home: Path, ranges: int) -> Result:
    """What a batch of ten changes in each range takes, which is next to no changes."""
    log, limit = home / f"log-{ranges}", ranges * 10
    asyncio.run(make_log(log, parts=ranges, changes=limit * _BATCHES))
    changes = _source(spark, log, maxChangesPerBatch=str(limit))
    took = _batches(changes, home / f"overhead-{ranges}")
    assert len(took) == _BATCHES, "batches were not cut as they were to be"
    milliseconds = median(took[_SKIPPED:]) * 1000
    return Result(
        name=f"pipeline.batch_of_{ranges}_ranges",
        value=milliseconds,
        unit="ms",
        goal=at_most(milliseconds, 80) if ranges == _RANGES else None,
    )


def _table(spark: "SparkSession", home: Path, name: str) -> Result:
    """What one run takes in, its start included: the second, for the first finds Java cold."""
    seconds = [_seconds_to_keep(spark, home, name, home / f"tables-{name}-{n}") for n in (1, 2)]
    return Result(name=f"pipeline.{name}", value=_CHANGES / seconds[-1], unit="changes/s")


def _seconds_to_keep(spark: "SparkSession", home: Path, name: str, directory: Path) -> float:
    settings = _settings(home / "log", directory, name)
    starters = TableQueries(spark=spark, settings=settings, once=True).starters()
    began = time.perf_counter()
    assert starters[name]().awaitTermination(_PATIENCE), f"{name} takes too long"
    return time.perf_counter() - began


def _latency(spark: "SparkSession", home: Path) -> Result:
    """From an append to the commit that has it, with an interval of zero."""
    log = home / "log-latency"
    asyncio.run(make_log(log, parts=_RANGES, changes=0))
    settings = _settings(log, home / "tables-latency", "changes")
    query = TableQueries(spark=spark, settings=settings).starters()["changes"]()
    took: list[float] = []
    try:
        for n in range(_LATENCIES + _SKIPPED):
            before = DeltaTable(settings.table("changes")).version()
            asyncio.run(_append(log, n))
            began = time.perf_counter()
            while DeltaTable(settings.table("changes")).version() == before:
                time.sleep(0.005)
                assert time.perf_counter() - began < _PATIENCE, "nothing was committed"
            took.append(time.perf_counter() - began)
    finally:
        query.stop()
    return Result(name="pipeline.latency", value=median(took[_SKIPPED:]), unit="s")


async def _append(log: Path, n: int) -> None:
    async with EventLogWriter.open(log) as writer:
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


def _source(spark: "SparkSession", log: Path, **options: str) -> "DataFrame":
    return stream(spark, f"eventlog:{log}", **options)


def _batches(rows: "DataFrame", checkpoint: Path) -> Sequence[float]:
    """Read what is there; return the seconds of each batch that had rows."""
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_PATIENCE), f"{checkpoint.name} takes too long"
    return [x.batchDuration / 1000 for x in query.recentProgress if x.numInputRows]
