"""A pipeline as a process: Spark, the queries, their status, and a stop within a deadline."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from changefeed.observers.dead_letters import open_dead_letters
from changefeed.observers.registry import load_observer
from changefeed.pipeline import start_offset
from changefeed.pipeline.checkpoint_dir import all_owned
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.metrics import PipelineListener
from changefeed.pipeline.observer_sink import NAME, WHOLE_RANGES, ObserverSink
from changefeed.pipeline.progress import ProgressLog, TableProgress
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.settings import OBSERVER, PipelineSettings
from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.source.addresses import identity_at, open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.drain import DrainGate, holding
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.spark import stream
from changefeed.pipeline.spark_errors import try_again
from changefeed.pipeline.supervisor import Filler, Starter, keep_running, started
from changefeed.pipeline.tables.queries import TableQueries
from changefeed.pipeline.web import served
from changefeed.runtime.logs import get_logger

_log = get_logger()

_TRIES_OF_ONCE: Final = 4  # each has asked the feed for a minute
_FRESH_WORKERS: Final = {"spark.python.worker.reuse": "false"}


def run_tables(
    settings: PipelineSettings,
    stop: Stopping,
    *,
    once: bool,
    registry: CollectorRegistry,
) -> None:
    """Keep the tables until asked to stop or, with ``once``, until they are up to date.

    ``registry`` is what ``/metrics`` serves. Raise ``Failure`` if a table cannot be kept, and
    what opening the feed raises.
    """
    tables = settings.tables
    if not tables:
        raise PipelineRefused("no table is enabled: keep changes or latest, or name aggregates")
    with _process(settings, tables, settings.spark, once=once, registry=registry) as process:
        queries = TableQueries(
            spark=process.spark,
            settings=settings,
            once=once,
            hold=process.hold,
            starts=process.starts,
        )
        starters = try_again(queries.starters, stop)
        process.run(starters, stop, fillers=queries.fillers())


def run_observer(
    settings: PipelineSettings,
    stop: Stopping,
    *,
    once: bool,
    registry: CollectorRegistry,
) -> None:
    """Run the observer on executors."""
    wanted = settings.observer
    if wanted.name is None:
        raise PipelineRefused("no observer was named: give one with --observer module:Class")
    load_observer(wanted.name, wanted.options)  # refused before Spark is started
    if wanted.on_failure == "dead-letter":
        open_dead_letters(wanted.dead_letters)
    # What a task has left behind in a thread must not meet the next task.
    conf = {**({} if wanted.timeout is None else _FRESH_WORKERS), **settings.spark}
    with _process(settings, [OBSERVER], conf, once=once, registry=registry) as process:
        observing = Observing(
            spark=process.spark,
            settings=settings,
            once=once,
            hold=process.hold,
            start=process.starts[OBSERVER],
        )
        process.run({OBSERVER: observing.started}, stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observing:
    """The query of an observer. ``once``: deliver what is there now, then end."""

    spark: SparkSession
    settings: PipelineSettings
    hold: DrainGate
    start: Offset
    once: bool = False

    def started(self) -> StreamingQuery:
        self.spark.dataSource.register(ObserverSink)
        settings = self.settings
        changes = stream(
            self.spark,
            settings.feed,
            startingAt=self.start.as_text(),
            maxChangesPerTrigger=str(settings.max_changes),
            holdFile=self.hold.file(OBSERVER),
            sliceChanges=WHOLE_RANGES,
        )
        writer = changes.writeStream.format(NAME).options(
            observer=settings.observer.model_dump_json(),
            log=settings.log.model_dump_json(),
            epoch=str(self.start.epoch),
            identity=identity_at(settings.feed),
        )
        return started(
            writer,
            OBSERVER,
            checkpoint=settings.checkpoint(OBSERVER),
            interval=None if self.once else settings.observer.interval,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """What is there for as long as queries run."""

    spark: SparkSession
    settings: PipelineSettings
    hold: DrainGate
    progress: TableProgress
    listener: PipelineListener
    starts: Mapping[str, Offset]
    once: bool

    def run(
        self,
        starters: Mapping[str, Starter],
        stop: Stopping,
        fillers: Mapping[str, Filler] | None = None,
    ) -> None:
        settings = self.settings
        _log.info("pipeline.started", feed=settings.feed, tables=list(starters))
        keep_running(
            starters,
            stop,
            self.hold,
            progress=self.progress,
            stop_timeout=settings.stop_timeout,
            tries=_TRIES_OF_ONCE if self.once else None,
            look=ProgressLog(self.progress, stop.now).look,
            failed=self.listener.failed_to_start,
            fillers=fillers,
        )
        _log.info("pipeline.stopped")


@contextmanager
def _process(
    settings: PipelineSettings,
    names: Sequence[str],
    conf: Mapping[str, str],
    *,
    once: bool,
    registry: CollectorRegistry,
) -> Iterator[_Process]:
    """Start what the queries of these names need; what is refused is, before Spark starts."""
    progress = TableProgress()
    checkpoints = [settings.checkpoint(x) for x in names]
    with (
        query_advice(),
        closing(open_access(settings.feed)) as access,
        all_owned(checkpoints),
        served(settings.web, progress, registry),
        holding() as hold,
    ):
        starts = {
            x: start_offset.resolve(settings.checkpoint(x), settings.start, access)
            for x in names
        }
        listener = PipelineListener(access, progress, starts=starts)
        with (
            spark_session("changefeed", conf, master=settings.master) as spark,
            listened(spark, listener),
        ):
            yield _Process(
                spark=spark,
                settings=settings,
                hold=hold,
                progress=progress,
                listener=listener,
                starts=starts,
                once=once,
            )


@contextmanager
def listened(spark: SparkSession, listener: PipelineListener) -> Iterator[None]:
    """Have a listener hear of all queries until the block is left."""
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
