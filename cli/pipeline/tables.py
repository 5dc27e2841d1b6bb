"""``changefeed pipeline run`` and ``once``: the same, but for when they end."""

from collections.abc import Callable

from changefeed.cli.flags import Config, Feed, Set
from changefeed.cli.pipeline.exit_codes import exit_on_spark_error
from changefeed.cli.pipeline.flags import (
    Choices,
    Directory,
    FromLeases,
    Port,
    Schema,
    Start,
    Submitted,
    from_leases,
)
from changefeed.cli.pipeline.session import report_and_stop


def _command(text: str, *, ends: bool) -> Callable[..., None]:
    def command(
        *,
        config: Config = None,
        feed: Feed = None,
        directory: Directory = None,
        start: Start = None,
        from_leases_: FromLeases = None,
        body_schema: Schema = None,
        metrics_port: Port = None,
        set_: Set = None,
        submitted: Submitted = False,
    ) -> None:
        with exit_on_spark_error():
            choices = Choices(
                config=config,
                feed=feed,
                directory=directory,
                start=start,
                body_schema=body_schema,
                metrics_port=metrics_port,
                sets=set_ or (),
            )
            settings = choices.settings()
            settings, _ = from_leases(settings, from_leases_, settings.tables)
            with report_and_stop(settings) as (stop, registry):
                from changefeed.pipeline.run import keep  # noqa: PLC0415 - it imports pyspark

                keep(settings, stop, once=ends, submitted=submitted, registry=registry)

    command.__doc__ = text
    return command


run = _command(
    """Keep the tables up to date until SIGTERM or Ctrl-C.

    Then the batches that run are finished, for as long as stop_timeout; a second signal
    breaks them off. Ends with 0 after a stop, 2 if something must be changed first, 1 for
    other failures.
    """,
    ends=False,
)
once = _command(
    """Bring the tables up to where the feed is now, and end: for cron, Airflow and the like.

    Ends with 0, also when it was stopped before; 2 if something must be changed first, 1
    for other failures.
    """,
    ends=True,
)
