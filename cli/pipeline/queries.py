"""``changefeed pipeline run`` and ``observe``: the commands that run queries of Spark.

Both import Spark only once the settings are known to be right.
"""

from typing import Annotated

import typer

from changefeed.cli.flags import with_flags
from changefeed.cli.pipeline.exit_codes import exit_on_spark_error
from changefeed.cli.pipeline.flags import ObserveFlags, PipelineFlags
from changefeed.cli.pipeline.session import report_and_stop

Once = Annotated[bool, typer.Option("--once", help="End where the feed is now.")]


@with_flags
def run(flags: PipelineFlags, *, once: Once = False) -> None:
    """Keep the tables up to date until SIGTERM or Ctrl-C.

    Then the batches that run are finished, for as long as stop_timeout; a second signal
    breaks them off. Ends with 0 after a stop, 2 if something must be changed first, 1 for
    other failures. With --once it is for cron, Airflow and the like.
    """
    with exit_on_spark_error(), report_and_stop(flags.settings()) as (settings, stop, registry):
        from changefeed.pipeline.run import run_tables  # noqa: PLC0415

        run_tables(settings, stop, once=once, registry=registry)


@with_flags
def observe(flags: ObserveFlags, *, once: Once = False) -> None:
    """Run an observer on Spark executors, at least once for each change.

    Retries, time limits and dead letters are set as for hosts: --set observer.timeout=30.
    SIGTERM or Ctrl-C lets the batch that runs end. Ends as run does.
    """
    with exit_on_spark_error(), report_and_stop(flags.settings()) as (settings, stop, registry):
        from changefeed.pipeline.run import run_observer  # noqa: PLC0415

        run_observer(settings, stop, once=once, registry=registry)
