"""``changefeed pipeline``: the feed of hosts, on Spark."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import ObserverFlags, SettingPath, with_flags

if TYPE_CHECKING:
    from changefeed.pipeline.settings import PipelineSettings

pipeline = typer.Typer(
    help="Keep tables of a feed with Spark: every change, the latest state, figures.",
    no_args_is_help=True,
    add_completion=False,
)

Once = Annotated[bool, typer.Option("--once", help="End at the current end of the feed.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_FEED = "Where changes come from: eventlog:DIRECTORY, brokers://…, …"


@dataclass(frozen=True, kw_only=True)
class PipelineFlags(ObserverFlags):
    """The flags of all commands of a pipeline."""

    feed: Annotated[
        str | None,
        typer.Option("--feed", help=_FEED),
        SettingPath(("feed",)),
    ] = None
    directory: Annotated[
        str | None,
        typer.Option("--directory", help="Where tables and checkpoints are kept."),
        SettingPath(("directory",)),
    ] = None

    def settings(self) -> "PipelineSettings":
        """Merge flags, environment and file. Raise ``UserError`` for what is wrong in them."""
        from changefeed.pipeline.settings import load_settings

        return load_settings(self.config, self.nested())


@pipeline.command()
@with_flags
def run(flags: PipelineFlags, *, once: Once = False) -> None:
    """Keep the tables up to date until SIGTERM or Ctrl-C, and run the observer if one is named.

    A stop lets the batches that run end, for stop_timeout at most; a second signal breaks them
    off. Ends with 0 after a stop, 2 if something must be changed first, 1 for other failures.
    Use --once for cron, Airflow and the like.

    An observer runs on executors, at least once for each change. Set its retries, time limits
    and dead letters as for hosts: --set observer.timeout=30.
    """
    from changefeed.cli.pipeline import queries

    with exit_on_error():
        queries.run(flags.settings(), once=once)


@pipeline.command()
@with_flags
def status(
    flags: PipelineFlags,
    *,
    json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh each second.")] = False,
) -> None:
    """Show how far each table is. Spark is not started, and the pipeline need not run.

    With --json and --watch, each look is one line.
    """
    from changefeed.cli.pipeline.status import show

    with exit_on_error():
        show(flags.settings(), json=json, watch=watch)


@pipeline.command()
def schema(
    *,
    feed: Annotated[str, typer.Option("--feed", help=_FEED)],
    changes: Annotated[
        int, typer.Option("--changes", min=1, help="How many of the newest to look at.")
    ] = 1000,
    json: Json = False,
) -> None:
    """Print columns for body_schema that most of the newest bodies fit, and what does not.

    Judge them before you use them: a stream never infers its schema. Spark is not started.
    """
    from changefeed.cli.pipeline.schema import show

    with exit_on_error():
        show(feed, changes, json=json)
