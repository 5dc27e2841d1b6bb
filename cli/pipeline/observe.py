"""``changefeed pipeline observe``: the observers of hosts, on executors."""

from typing import Annotated

import typer

from changefeed.cli.flags import with_flags
from changefeed.cli.pipeline.exit_codes import exit_on_spark_error
from changefeed.cli.pipeline.flags import ObserveFlags
from changefeed.cli.pipeline.session import report_and_stop


@with_flags
def observe(
    flags: ObserveFlags,
    *,
    once: Annotated[bool, typer.Option("--once", help="End where the feed is now.")] = False,
) -> None:
    """Run an observer on Spark executors, at least once for each change.

    Retries, time limits and dead letters are set as for hosts: --set observer.timeout=30.
    SIGTERM or Ctrl-C lets the batch that runs end. Ends as run does.
    """
    with exit_on_spark_error():
        settings = flags.settings()
        with report_and_stop(settings) as (stop, registry):
            from changefeed.pipeline import run as keeping  # noqa: PLC0415 - it imports pyspark

            keeping.observe(settings, stop, once=once, registry=registry)
