"""The Spark source and the tables against what Spark itself reads, as streams.

Everything runs in one session. The source and Parquet are streams over the same rows, read
whole in one batch into the noop sink, beside a source that does no work in Python; they take
turns, after a round to warm up, and a ratio is the median of those of each round. What is
timed is the batch as Spark times it: from planning to its commit, without the start of the
query.

Needs the extra ``spark``, and takes minutes where others take half of one.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from changefeed.log.directory.writer import compact_log
from changefeed.pipeline import read
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.source.record_batches import EVERYTHING
from changefeed.pipeline.source.spark import stream
from changefeed.pipeline.tables.queries import TableQueries

from .idle_source import NAME as IDLE
from .idle_source import IdleSource
from .logs import make_log
from .result import Result, at_most, by_rounds
from .spark_timing import ended, seconds_of, seconds_of_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHANGES = 500_000
_BACKLOG = 1_000_000  # a whole batch of the default size
_RANGES = 8
_ROUNDS = 5  # after one to warm up
_BATCHES = 30
_SKIPPED = 5  # the first batches, in which Java still compiles

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
            _overhead(spark, home),
        ]


def _reading(spark: "SparkSession", home: Path) -> Iterator[Result]:
    streams = _streams(spark, home)
    rounds = [_round(streams, home / f"round-{n}") for n in range(_ROUNDS + 1)][1:]
    yield by_rounds("pipeline", rounds, "parquet", "rows/s")
    yield by_rounds("pipeline", rounds, "source", "rows/s", against="parquet", goal=0.65)
    yield by_rounds("pipeline", rounds, "source_without_work", "rows/s", against="parquet")


def _streams(spark: "SparkSession", home: Path) -> Mapping[str, Callable[[], "DataFrame"]]:
    """Return what makes a stream of the same rows, by where they come from."""
    log, parquet = home / "log", str(home / "parquet")
    rows = spark.read.format("changefeed").option("feed", f"eventlog:{log}").load()
    rows.write.parquet(parquet)
    files = spark.readStream.schema(rows.schema)
    spark.dataSource.register(IdleSource)
    return {
        "parquet": lambda: files.parquet(parquet),
        "source": lambda: stream(spark, f"eventlog:{log}"),
        "source_without_work": lambda: spark.readStream.format(IDLE).load(
            ranges=str(_RANGES), rows=str(_CHANGES)
        ),
    }


def _round(streams: Mapping[str, Callable[[], "DataFrame"]], home: Path) -> Rates:
    return {
        name: _CHANGES / sum(seconds_of_batches(x(), home / name))
        for name, x in streams.items()
    }


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
    rounds = [
        {name: _CHANGES / seconds_of(x) for name, x in batches.items()}
        for _ in range(_ROUNDS + 1)
    ][1:]
    yield by_rounds("pipeline", rounds, "parquet_in_batches", "rows/s")
    against = "parquet_in_batches"
    yield by_rounds("pipeline", rounds, "backlog", "rows/s", against=against, goal=1.0)
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
        yield by_rounds("pipeline", rounds, filled, "rows/s", against=against, goal=0.95)


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
    return sum(x.batchDuration for x in ended(query).recentProgress) / 1000


def _overhead(spark: "SparkSession", home: Path) -> Result:
    """What a batch of ten changes in each range takes, which is next to no changes."""
    log, limit = home / "log-of-batches", _RANGES * 10
    asyncio.run(make_log(log, parts=_RANGES, changes=limit * _BATCHES))
    changes = stream(spark, f"eventlog:{log}", maxChangesPerBatch=str(limit))
    took = seconds_of_batches(changes, home / "overhead")
    assert len(took) == _BATCHES, "batches were not cut as they were to be"
    milliseconds = median(took[_SKIPPED:]) * 1000
    return Result(
        name=f"pipeline.batch_of_{_RANGES}_ranges",
        value=milliseconds,
        unit="ms",
        goal=at_most(milliseconds, 80),
    )


def _settings(log: Path, directory: Path, only: str) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "feed": f"eventlog:{log}",
            "directory": str(directory),
            "changes": {"enabled": only == "changes", "interval": 0},
            "latest": {"enabled": only == "latest", "interval": 0},
        }
    )
