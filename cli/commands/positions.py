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
    """Save where each range is, what has ended, and what is paused.

    Hosts may run meanwhile. Each position is a checkpoint; which ranges there are, and which
    have ended, is of one moment. An existing file is replaced at once or not at all.
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

    Stop all hosts first, and the other fleet: it refuses while one lives. It compares the
    whole file with the feed before it writes anything. Leases of ranges that the source does
    not have are deleted, and created again in time. Prints what will be delivered again or
    never, and asks before it changes a lease that is there. Ends with 1 if not all of it was
    done; then do it again.

    A .NET fleet's leases need no import to be taken over under their own prefix.
    """
    from changefeed.cli import position_import

    with exit_on_error():
        done = asyncio.run(
            position_import.import_positions(flags.settings(), source, yes=yes, dry_run=dry_run)
        )
    raise typer.Exit(0 if done else FAILED)
