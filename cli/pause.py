"""``changefeed pause`` and ``changefeed resume``: stop reading ranges for a while."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from changefeed.cli.existing import existing_leases
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import LeaseFlags
from changefeed.cli.io.report import say
from changefeed.fleet.claims import pause_ranges, resume_ranges
from changefeed.fleet.phrases import Outcome
from changefeed.host.settings import Settings
from changefeed.runtime.errors import UserError


@with_flags
def pause(
    ranges: Annotated[
        list[str] | None, typer.Argument(metavar="[RANGE]...", help="The ranges to pause.")
    ] = None,
    *,
    flags: LeaseFlags,
    all_: Annotated[
        bool, typer.Option("--all", help="All that exist: the whole fleet stands still.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; status, logs and /leases show it.")
    ] = "paused by hand",
) -> None:
    """Stop reading some ranges until they are resumed, or all of them with --all.

    Their owners finish their current batch, checkpoint and release them. A range whose
    lease is made later, after a split, say, is not paused.
    """
    with exit_on_error():
        if bool(ranges) == all_:
            raise UserError("name the ranges to pause, or all of them with --all")
        settings = flags.settings()
        asyncio.run(_pause(settings, ranges or [], reason))


@with_flags
def resume(
    ranges: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RANGE]...", help="Without any, all that are paused."),
    ] = None,
    *,
    flags: LeaseFlags,
) -> None:
    """Let some ranges, or all, be read again, from their checkpoints on."""
    with exit_on_error():
        settings = flags.settings()
        asyncio.run(_resume(settings, ranges or []))


async def _pause(settings: Settings, names: list[str], reason: str) -> None:
    async with existing_leases(settings) as container:
        said = await pause_ranges(container, names, reason)
    _print(said, "there are no ranges to pause")


async def _resume(settings: Settings, names: list[str]) -> None:
    async with existing_leases(settings) as container:
        said = await resume_ranges(container, names)
    _print(said, "no range was paused")


def _print(said: Sequence[Outcome], nothing: str) -> None:
    for line in said:
        say(line.text)
    if not said:
        say(nothing)
