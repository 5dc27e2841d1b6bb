"""``changefeed pipeline run``: tables, kept up to date with Spark."""

from typing import Annotated

import typer

from changefeed.cli.flags import with_flags
from changefeed.cli.pipeline.exit_codes import exit_on_spark_error
from changefeed.cli.pipeline.flags import PipelineFlags
from changefeed.cli.pipeline.session import report_and_stop


@with_flags
def run(
    flags: PipelineFlags,
    *,
    once: Annotated[bool, typer.Option("--once", help="End where the feed is now.")] = False,
) -> None:
    """Keep the tables up to date until SIGTERM or Ctrl-C.

    Then the batches that run are finished, for as long as stop_timeout; a second signal
    breaks them off. Ends with 0 after a stop, 2 if something must be changed first, 1 for
    other failures. With --once it is for cron, Airflow and the like.
    """
    with exit_on_spark_error():
        settings = flags.settings()
        with report_and_stop(settings) as (stop, registry):
            from changefeed.pipeline.run import run_tables  # noqa: PLC0415 - it imports pyspark

            run_tables(settings, stop, once=once, registry=registry)
