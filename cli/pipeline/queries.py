"""Running the queries of Spark that a command asks for."""

from changefeed.cli.pipeline.session import report_and_stop
from changefeed.cli.pipeline.spark_errors import explaining_spark
from changefeed.pipeline.settings import PipelineSettings


def run(settings: PipelineSettings, *, once: bool) -> None:
    """Run a pipeline until asked to stop; with ``once`` until it is up to date."""
    with explaining_spark(), report_and_stop(settings) as (stop, registry):
        from changefeed.pipeline.run import run_pipeline  # noqa: PLC0415 - it imports Spark

        run_pipeline(settings, stop, once=once, registry=registry)
