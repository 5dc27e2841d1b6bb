"""Moving ranges that no host is reading to another position."""

from collections.abc import Sequence

from rich.table import Table

from changefeed.cli.existing_leases import existing_leases, fleet_watch, say_watched
from changefeed.cli.exit_codes import print_error
from changefeed.cli.io.report import say, show
from changefeed.cli.io.standard_input import confirmed
from changefeed.cli.io.tables import a_table
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.feed import BoundedFeed
from changefeed.fleet.phrases import named_leases, repeats
from changefeed.fleet.reset import (
    PositionMove,
    carry_out_move,
    check_position,
    planned_moves,
    refuse_in_use,
)
from changefeed.host.settings import Settings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet_record import adopt_feed, require_feed
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import UserError
from changefeed.runtime.quantities import counted


def check(ranges: Sequence[str], to: str, *, all_: bool) -> None:
    """Raise ``UserError`` for what cannot be meant, before anything is opened."""
    if bool(ranges) == all_:
        raise UserError("name the ranges to reset, or all of them with --all")
    check_position(ranges, to)


async def reset(
    settings: Settings, names: Sequence[str], to: str, *, yes: bool, dry_run: bool
) -> bool:
    """Move ranges, or all, to a position; return whether all of it was done."""
    async with (
        existing_leases(settings) as container,
        open_feed(settings.feed.address, settings.open_options) as opened,
    ):
        feed = BoundedFeed(opened)
        if names:
            await require_feed(container, feed.identity)
        chosen = _choose(await container.list(), names)
        if not dry_run:
            await refuse_in_use(
                container,
                {x.range_id for x in chosen},
                fleet_watch(settings),
                watching=say_watched(settings),
            )
        moves = await planned_moves(feed, container, chosen, to)
        show(_table(moves))
        if dry_run:
            return True
        if moves and not yes and not confirmed(f"Move {counted(len(moves), 'range')}?"):
            say("nothing was changed")
            return False
        done = await _carry_out(container, moves)
        if done and not names:  # none is left at a position in what this feed was before
            await adopt_feed(container, feed.identity)
        return done


def _choose(leases: Sequence[Lease], names: Sequence[str]) -> list[Lease]:
    if names:
        return named_leases(leases, names)
    ended = sorted(x.range_id for x in leases if x.ended)
    if ended:
        print_error(f"left out, and not read again, as they have ended: {', '.join(ended)}")
    return sorted((x for x in leases if not x.ended), key=lambda x: x.range_id)


async def _carry_out(container: LeaseContainer, moves: Sequence[PositionMove]) -> bool:
    failed = False
    for move in moves:
        said = await carry_out_move(container, move)
        failed = failed or said.failed
        (print_error if said.failed else say)(said.text)
    return not failed


def _table(moves: Sequence[PositionMove]) -> Table:
    rows = ((x.range_id, x.lease.position or "", x.to, repeats(x.again)) for x in moves)
    return a_table("range", "from", "to", "which means", rows=rows)
