"""Running the queries of Spark that a command asks for."""

from changefeed.cli.pipeline.session import report_and_stop
from changefeed.cli.pipeline.spark_errors import explaining_spark
from changefeed.pipeline.settings import PipelineSettings


def run(settings: PipelineSettings, *, once: bool) -> None:
    """Keep the tables until asked to stop; with ``once`` until they are up to date."""
    with explaining_spark(), report_and_stop(settings) as (stop, registry):
        from changefeed.pipeline.run import run_tables  # noqa: PLC0415 - it imports Spark

        run_tables(settings, stop, once=once, registry=registry)


def observe(settings: PipelineSettings, *, once: bool) -> None:
    """Run the observer until asked to stop; with ``once`` until it has had what is there."""
    with explaining_spark(), report_and_stop(settings) as (stop, registry):
        from changefeed.pipeline.run import run_observer  # noqa: PLC0415 - it imports Spark

        run_observer(settings, stop, once=once, registry=registry)
