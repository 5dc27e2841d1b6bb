"""``changefeed pipeline run`` and ``once``: the same, but for when they end."""

from collections.abc import Callable

from pipeline.logs import set_up_logs
from pipeline.stopping import Stopping

from .choices import (
    Choices,
    Config,
    Directory,
    Feed,
    FromLeases,
    Port,
    Schema,
    Set,
    Start,
    Submitted,
    from_leases,
)
from .mistakes import mistakes_told


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
        with mistakes_told():
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
            set_up_logs(settings.log)
            from pipeline.keeping import keep  # noqa: PLC0415 - it imports pyspark

            stop = Stopping()
            with stop.by_signals():
                keep(settings, stop, once=ends, submitted=submitted)

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
