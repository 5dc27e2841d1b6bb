"""``changefeed reset``: move ranges that no host is reading to another position."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.runtime.exit_codes import FAILED


@with_flags
def reset(
    ranges: Annotated[
        list[str] | None,
        typer.Argument(metavar="RANGE", help="Ranges, as status shows them."),
    ] = None,
    *,
    flags: FeedFlags,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="beginning, now, snapshot, a time with its zone, or a position."
        ),
    ],
    all_: Annotated[
        bool, typer.Option("--all", help="All ranges that have not ended.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")
    ] = False,
) -> None:
    """Move ranges to another position: hosts go on from there.

    It refuses while a live host owns a range: stop the fleet, or pause the range first. It
    prints how many changes are delivered again or never, and asks. Ends with 1 if not all of
    it was done.
    """
    from changefeed.cli import resetting

    with exit_on_error():
        settings, names = flags.settings(), ranges or []
        resetting.check(names, to, all_=all_)
        done = asyncio.run(resetting.reset(settings, names, to, yes=yes, dry_run=dry_run))
    raise typer.Exit(0 if done else FAILED)
