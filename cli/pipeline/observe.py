"""``changefeed pipeline observe``: the observers of hosts, on executors."""

from typing import Annotated

import typer

from changefeed.cli.flags import Config, Feed, Observer, Option, Set
from changefeed.cli.pipeline.exit_codes import exit_on_spark_error
from changefeed.cli.pipeline.flags import (
    Choices,
    Directory,
    FromLeases,
    Port,
    Start,
    Submitted,
    from_leases,
)
from changefeed.cli.pipeline.session import report_and_stop
from changefeed.pipeline.checkpoint_dir import settle_epoch
from changefeed.pipeline.settings import OBSERVER


def observe(
    *,
    observer: Observer = None,
    config: Config = None,
    feed: Feed = None,
    directory: Directory = None,
    option: Option = None,
    start: Start = None,
    from_leases_: FromLeases = None,
    once: Annotated[bool, typer.Option("--once", help="End where the feed is now.")] = False,
    metrics_port: Port = None,
    set_: Set = None,
    submitted: Submitted = False,
) -> None:
    """Run an observer on Spark executors, at least once for each change.

    Retries, time limits and dead letters are set as for hosts: --set observer.timeout=30.
    SIGTERM or Ctrl-C lets the batch that runs end. Ends as run does.
    """
    with exit_on_spark_error():
        choices = Choices(
            config=config,
            feed=feed,
            directory=directory,
            start=start,
            metrics_port=metrics_port,
            observer=observer,
            options=option or (),
            sets=set_ or (),
        )
        settings, epoch = from_leases(choices.settings(), from_leases_, [OBSERVER])
        epoch = settle_epoch(settings.checkpoint(OBSERVER), epoch)
        with report_and_stop(settings) as (stop, registry):
            from changefeed.pipeline import run as keeping  # noqa: PLC0415 - it imports pyspark

            keeping.observe(
                settings,
                stop,
                once=once,
                submitted=submitted,
                epoch=epoch,
                registry=registry,
            )
