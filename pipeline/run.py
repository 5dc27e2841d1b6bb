"""A pipeline as a process: Spark, the queries, their status, and a stop within a deadline."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from changefeed.observers.dead_letters import open_dead_letters
from changefeed.observers.registry import load_observer
from changefeed.pipeline import start_offset
from changefeed.pipeline.checkpoint_dir import all_owned
from changefeed.pipeline.metrics import PipelineListener
from changefeed.pipeline.observing import Observing
from changefeed.pipeline.progress import ProgressLog, TableProgress
from changefeed.pipeline.session import spark_session
from changefeed.pipeline.settings import OBSERVER, ObserverSettings, PipelineSettings
from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.drain import holding
from changefeed.pipeline.spark_errors import try_again
from changefeed.pipeline.supervisor import keep_running
from changefeed.pipeline.tables.queries import TableQueries
from changefeed.pipeline.web import served
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger

_log = get_logger()

_TRIES_OF_ONCE: Final = 4  # each has asked the feed for a minute
_FRESH_WORKERS: Final = {"spark.python.worker.reuse": "false"}


def run_pipeline(
    settings: PipelineSettings,
    stop: Stopping,
    *,
    once: bool,
    registry: CollectorRegistry,
) -> None:
    """Keep the tables, and run the observer, that the settings name: until asked to stop or,
    with ``once``, until they are up to date.

    ``registry`` is what ``/metrics`` serves. Raise ``Failure`` if one cannot go on, and what
    opening the feed raises; what is refused is, before Spark starts.
    """
    names, progress = settings.queries, TableProgress()
    conf = {**_conf_of_observer(settings.observer), **settings.spark}
    if not names:
        raise UserError(
            "no table is enabled: keep changes or latest, or name aggregates or an observer"
        )
    with (
        query_advice(),
        closing(open_access(settings.feed)) as access,
        all_owned([settings.checkpoint(x) for x in names]),
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
            tables = TableQueries(
                spark=spark, settings=settings, once=once, hold=hold, starts=starts
            )
            starters = dict(try_again(tables.starters, stop))
            if OBSERVER in names:
                starters[OBSERVER] = Observing(
                    spark=spark, settings=settings, once=once, hold=hold, start=starts[OBSERVER]
                ).started
            _log.info("pipeline.started", feed=settings.feed, tables=list(starters))
            keep_running(
                starters,
                stop,
                hold,
                progress=progress,
                stop_timeout=settings.stop_timeout,
                tries=_TRIES_OF_ONCE if once else None,
                look=ProgressLog(progress, stop.now).look,
                failed=listener.failed_to_start,
                fillers=tables.fillers(),
            )
            _log.info("pipeline.stopped")


def _conf_of_observer(wanted: ObserverSettings) -> Mapping[str, str]:
    """Return what Spark needs for the observer, if one is named. Raise ``UserError`` for one
    that cannot be made, or whose dead letters cannot be opened.
    """
    if wanted.name is None:
        return {}
    load_observer(wanted.name, wanted.options)
    if wanted.on_failure == "dead-letter":
        open_dead_letters(wanted.dead_letters)
    # What a task has left behind in a thread must not meet the next task.
    return {} if wanted.timeout is None else _FRESH_WORKERS


@contextmanager
def listened(spark: SparkSession, listener: PipelineListener) -> Iterator[None]:
    """Have a listener hear of all queries until the block is left."""
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
