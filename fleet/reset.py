"""Moving the position of a range, from outside of any host.

The range must not be read meanwhile: no host owns it, or its owner is dead, or it is
paused. A new epoch without an owner comes first, so that no checkpoint of a former owner
can follow; then the new position is written under it. A host that acquires the lease in
between wins: the position is left as it was, and ``UserError`` says so.

Limits: changes of ranges that have ended are not read again, whatever their children
are reset to. How many changes a move repeats or skips is as exact as the feed's own lag.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from changefeed.feeds.backlog import changes_between
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import (
    Feed,
    FeedRange,
    Position,
    RangeEnded,
    RangeId,
)
from changefeed.feeds.starts import start_in
from changefeed.fleet.liveness import living_hosts
from changefeed.fleet.phrases import Outcome
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.fleet import FleetWatch
from changefeed.leases.lease import Lease
from changefeed.leases.updating import evict_now
from changefeed.runtime.errors import StoreError, UserError

RESET_FORMS = (
    "--to is beginning, now, snapshot, a time with its zone (2026-01-31T12:00Z, "
    "2026-01-31T13:00+01:00), or a position as status shows it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionMove:
    """A new position for a range. ``again`` is how many changes are delivered once more;
    below 0, how many are skipped; ``None`` where the feed cannot count them.
    """

    lease: Lease
    to: Position
    again: int | None

    @property
    def range_id(self) -> RangeId:
        return self.lease.range_id


async def planned(
    feed: Feed, container: LeaseContainer, range_id: RangeId, to: str
) -> PositionMove:
    """Settle where to move a range, without moving it. ``to`` as ``start_in`` reads it.

    Raise ``FeedRefused`` for a position that the feed does not take, and
    ``LeaseConflict`` if there is no such lease.
    """
    lease = await container.read(range_id)
    if lease is None:
        raise LeaseConflict(Lease(range=FeedRange(id=range_id)), None)
    start = start_in(to)
    if start is not None:
        position = await feed.start(lease.range, start)
    else:
        position = Position(to)
        with suppress(RangeEnded):  # at its end, which is a position like any other
            await feed.read(lease.range, position, 1)
    return PositionMove(
        lease=lease,
        to=position,
        again=None
        if lease.position is None
        else await changes_between(feed, lease.range, position, lease.position),
    )


async def refuse_in_use(
    container: LeaseContainer,
    ranges: Collection[RangeId],
    watch: FleetWatch,
    *,
    watching: Callable[[Sequence[str]], None] = lambda _: None,
    wall: Callable[[], float] = time.time,
) -> None:
    """Raise ``UserError`` if a living host owns one of ``ranges`` that is not paused. It takes
    as long as ``living_hosts``.
    """

    def is_in_use(lease: Lease) -> bool:
        return lease.range_id in ranges and _is_read(lease)

    living = await living_hosts(
        container, watch, owning=is_in_use, watching=watching, wall=wall
    )
    for owner, name in living.items():
        raise _in_use(RangeId(name), owner)


async def carry_out(container: LeaseContainer, move: PositionMove) -> None:
    """Write the new position. Raise ``UserError`` if a host began to read meanwhile."""

    def is_free(lease: Lease) -> bool:
        if _is_read(lease) and lease.sign_of_life != move.lease.sign_of_life:
            raise _in_use(move.range_id, str(lease.owner))
        return True

    taken = await evict_now(container, move.range_id, is_free, lost=Checkpoint(move.to))
    if taken is not None:
        await _write(container, taken[1], move)


async def _write(container: LeaseContainer, vacant: Lease, move: PositionMove) -> None:
    wanted = vacant.reset_to(Checkpoint(move.to)).stamped(stamp=time.time())
    try:
        await container.replace(wanted)
    except LeaseConflict as conflict:
        if conflict.stored is not None and conflict.stored.owner is not None:
            raise _in_use(move.range_id, conflict.stored.owner) from conflict
        raise


def _is_read(lease: Lease) -> bool:
    return lease.owner is not None and lease.paused is None


def _in_use(range_id: RangeId, owner: str) -> UserError:
    """A living host reads the range, so its position is that host's to write."""
    return UserError(
        f"range {range_id} is owned by {owner}, which lives: pause the range first "
        f"(changefeed pause {range_id}), or stop the fleet"
    )


# With the sentences that say what it means


def check_position(names: Sequence[str], to: str) -> None:
    """Raise ``UserError`` for a position that these ranges, or all, cannot have."""
    try:
        start = start_in(to)
    except ValueError as error:
        raise UserError(str(error)) from error
    if start is None and len(names) != 1:
        raise UserError(
            f"{to!r} can only be a position in one range: name that range. {RESET_FORMS}"
        )


async def planned_moves(
    feed: Feed, container: LeaseContainer, leases: Sequence[Lease], to: str
) -> list[PositionMove]:
    """Settle where to move ranges, without moving any. Raise ``UserError`` with the forms of
    a position for what is none.
    """
    try:
        return [await planned(feed, container, x.range_id, to) for x in leases]
    except FeedRefused as error:
        if start_in(to) is not None:
            raise
        raise UserError(f"{to!r} is not a position: {RESET_FORMS}. {error}") from error


async def carry_out_move(container: LeaseContainer, move: PositionMove) -> Outcome:
    """Raise what containers raise."""
    try:
        await carry_out(container, move)
    except StoreError:
        raise
    except UserError as error:
        return Outcome(f"{move.range_id}: not moved: {error}", failed=True)
    more = "; it is paused, changefeed resume continues it" if move.lease.paused else ""
    return Outcome(f"{move.range_id}: moved to {move.to}{more}")
