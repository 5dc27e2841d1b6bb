"""``changefeed positions``: a fleet's positions and lineage, saved and given back."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from changefeed.cli.existing import existing_leases, fleet_watch, leases_if_any
from changefeed.cli.exit_codes import exit_on_error, print_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.position_files import read_positions
from changefeed.cli.io.report import say, show, write_document
from changefeed.cli.io.standard_input import confirmed
from changefeed.cli.io.tables import a_table
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backlog import changes_between, measure_backlog
from changefeed.feeds.feed import Feed
from changefeed.feeds.timeouts import bounded_feed
from changefeed.fleet.liveness import living_hosts
from changefeed.fleet.phrases import counted, repeats
from changefeed.fleet.restore import Change, Step, carry_out, read_all, steps_to
from changefeed.fleet.wanted_positions import refuse_wrong_positions
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict, LeaseGone, checkpoint_is_lost
from changefeed.leases.fleet_record import adopt_feed
from changefeed.leases.lease import Lease
from changefeed.leases.position_file import Positions, read_document, written
from changefeed.runtime.errors import UserError
from changefeed.runtime.exit_codes import FAILED
from changefeed.runtime.named_file import write_into

positions = typer.Typer(help="Save a fleet's positions, and give them back.")
File = Annotated[str, typer.Argument(metavar="FILE", help="A path, or - for standard output.")]


@positions.callback()
def _group() -> None:
    """Save a fleet's positions and lineage, and give them back."""


@positions.command()
@with_flags
def save(file: File, flags: FeedFlags) -> None:
    """Write down where each range is, what has ended, and what is paused.

    Hosts may run meanwhile. Each position is a checkpoint; which ranges there are, and which
    have ended, is of one moment. An existing file is replaced at once or not at all.
    """
    with exit_on_error():
        document = asyncio.run(_saved(flags.settings()))
        if file == "-":
            write_document(document)
            return
        _write_file(Path(file), document)
        say(f"{file}: {counted(len(read_document(document).positions), 'lease')}")


async def _saved(settings: Settings) -> bytes:
    async with (
        existing_leases(settings) as container,
        open_feed(settings.feed.address, settings.open_options) as feed,
    ):
        leases = await read_all(container)
        if leases is None:
            raise UserError("ranges split or end all the time: try again later")
        lost = [x for x in leases if x.position is None]
        if lost:
            raise UserError(checkpoint_is_lost(lost[0].range_id))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return written(leases, feed=feed.identity, saved_at=now)


def _write_file(file: Path, document: bytes) -> None:
    """Replace a file at once or not at all; write into what is none, a device or a pipe."""
    try:
        if file.exists() and not file.is_file():
            write_into(file, document)
        else:
            _replace_file(file.resolve(), document)
    except (OSError, ValueError, RuntimeError) as error:  # "/" and the like; links in a circle
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(file)!r} cannot be written: {reason}") from error


def _replace_file(file: Path, document: bytes) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as writing:
            writing.write(document)
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


@positions.command()
@with_flags
def restore(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A path, or - for standard input.")
    ],
    flags: FeedFlags,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
    ] = False,
) -> None:
    """Give a fleet the positions of a file, in the same container or in another.

    Stop all hosts first: it refuses while one lives. It compares the whole file with the feed
    before it writes anything. Leases of ranges that began after the
    file was saved are deleted, and created again in time. Prints what will be delivered again
    or never, and asks. Ends with 1 if not all of it was done; then do it again.
    """
    with exit_on_error():
        document = read_positions(file)
        done = asyncio.run(_restore(flags.settings(), document, yes=yes, dry_run=dry_run))
    raise typer.Exit(0 if done else FAILED)


async def _restore(
    settings: Settings, document: Positions, *, yes: bool, dry_run: bool
) -> bool:
    async with (
        open_feed(settings.feed.address, settings.open_options) as opened,
        leases_if_any(settings) as container,
    ):
        feed = bounded_feed(opened)
        await refuse_wrong_positions(document, feed, start=settings.feed.start)
        if not dry_run:
            await _refuse_while_hosts_live(container, settings)
        stored = await read_all(container)
        if stored is None:
            raise UserError("leases are written all the time: is that fleet really stopped?")
        steps = steps_to(document.leases, stored)
        show(await _table(feed, steps))
        if dry_run:
            return True
        if not yes and not confirmed(f"Restore {counted(len(steps), 'lease')}?"):
            say("nothing was changed")
            return False
        async with open_leases(settings) as opened_to_write:
            done = await _carry_out(opened_to_write, steps)
            if done:
                await adopt_feed(opened_to_write, feed.identity)
        return done


async def _refuse_while_hosts_live(container: LeaseContainer, settings: Settings) -> None:
    def say(names: Sequence[str]) -> None:
        print_error(
            f"watching whether {', '.join(names)} lives, for up to "
            f"{settings.leases.expiration:g} s"
        )

    living = await living_hosts(container, fleet_watch(settings), watching=say)
    if living:
        raise UserError(f"{', '.join(living)} lives: stop all hosts of the fleet first")


async def _carry_out(container: LeaseContainer, steps: Sequence[Step]) -> bool:
    failed = False
    for step in steps:
        try:
            await carry_out(container, step)
        except (LeaseConflict, LeaseGone) as error:
            failed = True
            print_error(f"{step.range_id}: {error}")
            continue
        say(f"{step.range_id}: {step.change.value}")
    return not failed


async def _table(feed: Feed, steps: Sequence[Step]) -> Table:
    rows = [
        (x.range_id, _place(x.stored), _place(x.wanted), await _meaning(feed, x)) for x in steps
    ]
    return a_table("range", "from", "to", "which means", rows=rows)


def _place(lease: Lease | None) -> str:
    if lease is None:
        return "-"
    marks = ", ended" * lease.ended + ", paused" * (lease.paused is not None)
    return f"{lease.position or 'lost'}{marks}"


async def _meaning(feed: Feed, step: Step) -> str:
    """Say how many changes are repeated or skipped, as far as the feed can count them.

    Raise ``FeedError`` for a position that hosts could not go on from.
    """
    if step.change is Change.DELETE:
        return "deleted; created again when its parents have been read"
    wanted = step.wanted
    assert wanted is not None, "only a deletion wants nothing"
    if wanted.ended or wanted.position is None:
        return str(step.change.value)
    if step.stored is None or step.stored.position is None:
        behind = await measure_backlog(feed, wanted.range, wanted.position)
        return f"created, {behind.changes:,} changes behind"
    return repeats(
        await changes_between(feed, wanted.range, wanted.position, step.stored.position)
    )
