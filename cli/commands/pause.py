"""``changefeed pause`` and ``changefeed resume``: stop reading ranges for a while."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.runtime.errors import UserError


@with_flags
def pause(
    ranges: Annotated[
        list[str] | None, typer.Argument(metavar="RANGE", help="The ranges to pause.")
    ] = None,
    *,
    flags: FeedFlags,
    all_: Annotated[
        bool, typer.Option("--all", help="All ranges: the whole fleet stands still.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason that status, logs and /leases show.")
    ] = "paused by hand",
    force: Annotated[
        bool,
        typer.Option("--force", help="Take the leases away now, without waiting for owners."),
    ] = False,
) -> None:
    """Stop reading some ranges until they are resumed, or all of them with --all.

    Their owners finish their current batch, checkpoint and release them. Ranges that begin
    later, as by a split, are not paused.

    With --force, the command takes leases from owners that are stuck or dead: resume the range,
    and another host has it at once. What the owner had in hand is delivered again; stop it.
    """
    from changefeed.cli import pausing

    with exit_on_error():
        if bool(ranges) == all_:
            raise UserError("name the ranges to pause, or all of them with --all")
        pausing_how = pausing.force if force else pausing.pause
        asyncio.run(pausing_how(flags.settings(), ranges or [], reason))


@with_flags
def resume(
    ranges: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RANGE", help="The ranges to resume (default: all that are paused)."
        ),
    ] = None,
    *,
    flags: FeedFlags,
) -> None:
    """Read paused ranges again, from their checkpoints on."""
    from changefeed.cli import pausing

    with exit_on_error():
        asyncio.run(pausing.resume(flags.settings(), ranges or []))
