"""``changefeed pause`` and ``changefeed resume``: stop reading ranges for a while."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from changefeed.cli.existing import existing_leases, named
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import LeaseFlags
from changefeed.feeds.feed import RangeId
from changefeed.host.settings import Settings
from changefeed.leases.lease import Lease
from changefeed.leases.operations import pause as pausing

Ranges = Annotated[
    list[str] | None, typer.Argument(metavar="[RANGE]...", help="Without any, all that exist.")
]


@with_flags
def pause(
    ranges: Ranges = None,
    *,
    flags: LeaseFlags,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; status, logs and /leases show it.")
    ] = "paused by hand",
) -> None:
    """Stop reading some ranges, or all, until they are resumed.

    Their owners finish their current batch, checkpoint and release them. A range whose
    lease is made later, after a split, say, is not paused.
    """
    with exit_on_error():
        settings = flags.settings()
        asyncio.run(_pause(settings, ranges or [], reason))


@with_flags
def resume(
    ranges: Ranges = None,
    *,
    flags: LeaseFlags,
) -> None:
    """Let some ranges, or all, be read again, from their checkpoints on."""
    with exit_on_error():
        settings = flags.settings()
        asyncio.run(_resume(settings, ranges or []))


async def _pause(settings: Settings, names: list[str], reason: str) -> None:
    async with existing_leases(settings) as container:
        before = _meant(await container.list(), names)
        changed = await pausing.pause(container, [x.range_id for x in before], reason)
    for lease in before:
        if lease.range_id in changed:
            typer.echo(f"{lease.range_id}: paused{_still_read(lease)}")
        elif lease.paused is not None:
            typer.echo(f"{lease.range_id}: was paused before: {lease.paused}")
        else:
            typer.echo(f"{lease.range_id}: has ended, or is paused by now")
    if not before:
        typer.echo("there are no ranges to pause")


async def _resume(settings: Settings, names: list[str]) -> None:
    async with existing_leases(settings) as container:
        before = _meant(await container.list(), names)
        changed = await pausing.resume(container, [x.range_id for x in before])
    for range_id in changed:
        typer.echo(f"{range_id}: resumed")
    for name in names:
        if RangeId(name) not in changed:
            typer.echo(f"{name}: was not paused")
    if not changed and not names:
        typer.echo("no range was paused")


def _meant(leases: Sequence[Lease], names: list[str]) -> list[Lease]:
    if names:
        return named(leases, names)
    return sorted((x for x in leases if not x.ended), key=lambda x: x.range_id)


def _still_read(lease: Lease) -> str:
    if lease.owner is None:
        return ""
    return f"; {lease.owner} finishes what it has in hand and releases it"
