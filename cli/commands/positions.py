"""``changefeed positions``: a fleet's positions and lineage, written down and given back."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.runtime.exit_codes import FAILED

positions = typer.Typer(
    help="Save the positions of a fleet, and restore them.",
    no_args_is_help=True,
    add_completion=False,
)


@positions.command()
@with_flags
def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A path, or - for standard output.")
    ],
    flags: FeedFlags,
) -> None:
    """Save the position of each range, and which ranges have ended or are paused.

    Hosts may run meanwhile. Each position is a checkpoint; the list of ranges is of one moment.
    It does not overwrite a file: an earlier export may be the way back.
    """
    from changefeed.cli import position_export

    with exit_on_error():
        asyncio.run(position_export.export(flags.settings(), file))


@positions.command("import")
@with_flags
def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="A file of positions, - for standard input, checkpoint:DIRECTORY of a query "
            "on Spark, or leases of Java and .NET: cosmos://HOST/DATABASE/CONTAINER?prefix=… "
            "(or ?processor=…&feed=…)."
        ),
    ],
    flags: FeedFlags,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")
    ] = False,
) -> None:
    """Give a fleet the positions of a file, of a pipeline, or of a Java or .NET fleet.

    Stop all hosts and the other fleet first: the command refuses while one lives. It compares
    the whole source with the feed before it writes anything. It deletes leases of ranges that
    the source lacks; hosts create them again. It prints how many changes are delivered again or
    never, and asks before it changes a lease. Ends with 1 if not all of it was done; then do it
    again.

    To take over a .NET fleet under its own prefix, you need no import.
    """
    from changefeed.cli import position_import

    with exit_on_error():
        done = asyncio.run(
            position_import.import_positions(flags.settings(), source, yes=yes, dry_run=dry_run)
        )
    raise typer.Exit(0 if done else FAILED)
