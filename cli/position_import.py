"""Giving a fleet the positions of a file, or of a fleet of another kind.

Leases in Cosmos DB that hosts of Java or .NET have written carry no lineage: they become leases
of this feed where they stand. What their fleet never read is left out, and starts where the
settings say.
"""

import asyncio
import time
from collections.abc import Sequence

from rich.table import Table

from changefeed.cli.existing_leases import fleet_watch, leases_if_any, say_watched
from changefeed.cli.exit_codes import print_error
from changefeed.cli.io.position_files import read_positions
from changefeed.cli.io.report import say, show
from changefeed.cli.io.standard_input import confirmed
from changefeed.cli.io.tables import a_table
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backlog import changes_between, measure_backlog
from changefeed.feeds.feed import BoundedFeed, Feed
from changefeed.fleet.liveness import living_hosts
from changefeed.fleet.phrases import repeats
from changefeed.fleet.position_checks import refuse_wrong_positions
from changefeed.fleet.restore import LeaseChange, LeaseRestore, carry_out, read_all, steps_to
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.fleet_record import adopt_feed
from changefeed.leases.lease import Lease
from changefeed.leases.position_file import Positions, read_document, written
from changefeed.runtime.errors import UserError
from changefeed.runtime.quantities import counted

_COSMOS = ("cosmos", "cosmos+http")
_CHECKPOINT = "checkpoint"
_THEIR_RENEWAL = 20.0  # .NET and Java renew each lease every 17 s, by default


async def import_positions(
    settings: Settings, source: str, *, yes: bool, dry_run: bool
) -> bool:
    """Give a fleet the positions at ``source``; return whether all of it was done."""
    scheme, _, place = source.partition(":")
    if scheme in _COSMOS:
        wanted = await _foreign(settings, source)
    elif scheme == _CHECKPOINT:
        wanted = await _in_file(settings, await _of_pipeline(settings, place))
    else:
        wanted = await _in_file(settings, read_positions(source))
    async with (
        open_feed(settings.feed.address, settings.open_options) as opened,
        leases_if_any(settings) as container,
    ):
        feed = BoundedFeed(opened)
        if not dry_run:
            await _refuse_while_hosts_live(container, settings)
        stored = await read_all(container)
        if stored is None:
            raise UserError("leases are written all the time: is that fleet really stopped?")
        steps = steps_to(wanted, stored)
        show(await _table(feed, steps))
        if dry_run:
            return True
        if not (yes or _only_creates(steps)) and not confirmed(_question(steps)):
            say("nothing was changed")
            return False
        async with open_leases(settings) as opened_to_write:
            done = await _carry_out(opened_to_write, steps)
            if done:
                await adopt_feed(opened_to_write, feed.identity)
        return done


async def _in_file(settings: Settings, document: Positions) -> Sequence[Lease]:
    async with open_feed(settings.feed.address, settings.open_options) as feed:
        await refuse_wrong_positions(document, BoundedFeed(feed), start=settings.feed.start)
    return document.leases


async def _of_pipeline(settings: Settings, checkpoint: str) -> Positions:
    """Return where a query on Spark has stopped."""
    from changefeed.pipeline.lease_offsets import leases_at  # noqa: PLC0415 - as below

    leases = await asyncio.to_thread(leases_at, checkpoint, settings.feed.address)
    return read_document(written(leases))


async def _foreign(settings: Settings, source: str) -> Sequence[Lease]:
    """Return the leases of a fleet of another kind, which must have stopped."""
    from changefeed.leases.cosmos import foreign  # noqa: PLC0415 - only for those who use it

    scheme, _, place = source.partition(":")
    found = await foreign.read_foreign(scheme, place, settings.cosmos.access)
    now, expiration = time.time(), settings.leases.expiration
    if any(foreign.may_be_alive(x, now=now, expiration=2 * expiration) for x in found):
        watch = max(expiration, _THEIR_RENEWAL)
        say(f"watching whether that fleet lives, for {watch:g} s")
        await asyncio.sleep(watch)
        before = found
        found = await foreign.read_foreign(scheme, place, settings.cosmos.access)
        if alive := foreign.moved(before, found):
            raise UserError(
                f"the fleet runs: {', '.join(alive)} wrote within the last {watch:g} s. "
                f"Stop it first"
            )
    async with open_feed(settings.feed.address, settings.open_options) as feed:
        ranges = await feed.ranges()
    wanted = foreign.imported(found, ranges)
    say(f"{counted(len(found), 'lease')} found, {len(found) - len(wanted)} of them never read")
    return wanted


def _only_creates(steps: Sequence[LeaseRestore]) -> bool:
    """Whether nothing that is there is changed."""
    return all(x.change in (LeaseChange.CREATE, LeaseChange.KEEP) for x in steps)


def _question(steps: Sequence[LeaseRestore]) -> str:
    return f"Give {counted(len(steps), 'lease')} these positions?"


async def _refuse_while_hosts_live(container: LeaseContainer, settings: Settings) -> None:
    living = await living_hosts(
        container, fleet_watch(settings), watching=say_watched(settings)
    )
    if living:
        raise UserError(f"{', '.join(sorted(living))} lives: stop all hosts of the fleet first")


async def _carry_out(container: LeaseContainer, steps: Sequence[LeaseRestore]) -> bool:
    failed = False
    for step in steps:
        try:
            await carry_out(container, step)
        except LeaseConflict as error:
            failed = True
            print_error(f"{step.range_id}: {error}")
            continue
        say(f"{step.range_id}: {step.change.value}")
    return not failed


async def _table(feed: Feed, steps: Sequence[LeaseRestore]) -> Table:
    rows = [
        (x.range_id, _place(x.stored), _place(x.wanted), await _meaning(feed, x)) for x in steps
    ]
    return a_table("range", "from", "to", "which means", rows=rows)


def _place(lease: Lease | None) -> str:
    if lease is None:
        return "-"
    marks = ", ended" * lease.ended + ", paused" * (lease.paused is not None)
    return f"{lease.position or 'lost'}{marks}"


async def _meaning(feed: Feed, step: LeaseRestore) -> str:
    """Say how many changes are repeated or skipped, as far as the feed can count them.

    Raise ``FeedError`` for a position that hosts could not go on from.
    """
    if step.change is LeaseChange.DELETE:
        return "deleted; created again when its parents have been read"
    wanted = step.wanted
    assert wanted is not None, "only a deletion wants nothing"
    if wanted.ended or wanted.position is None:
        return str(step.change.value)
    if step.stored is None or step.stored.position is None:
        behind = await measure_backlog(feed, wanted.range, wanted.position)
        return f"created, {counted(behind.changes, 'change')} behind"
    return repeats(
        await changes_between(feed, wanted.range, wanted.position, step.stored.position)
    )
