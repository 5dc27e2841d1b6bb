"""Pausing, resuming, releasing and moving ranges, with the sentences that say what it means."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed, RangeId
from changefeed.feeds.starts import start_in
from changefeed.fleet.phrases import counted, no_lease, repeats
from changefeed.host.reset import Move, RangeInUse, carry_out, planned
from changefeed.host.settings import LeaseSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import CheckpointMissing, LeaseGone
from changefeed.leases.lease import Lease
from changefeed.leases.operations import pause as pausing
from changefeed.leases.operations.release import release
from changefeed.runtime.errors import UserError

PAUSE_MEANS = (
    "Their owners finish their current batch, checkpoint and release them. A range whose "
    "lease is made later, after a split, say, is not paused."
)
RESUME_MEANS = "Let some ranges, or all, be read again, from their checkpoints on."
RELEASE_MEANS = (
    "Hosts do this by themselves with what has expired. It is for not waiting, and for an "
    "owner that renews but is stuck; stop that one as well. What the owner had in hand is "
    "delivered again."
)
RESET_FORMS = (
    "--to is beginning, now, a time with its zone (2026-01-31T12:00Z, "
    "2026-01-31T13:00+01:00), or a continuation as status shows it"
)


@dataclass(frozen=True, slots=True)
class Said:
    """One line of what was done, or what could not be."""

    text: str
    failed: bool = False


def named(leases: Collection[Lease], names: Sequence[str]) -> list[Lease]:
    """Return the leases of these ranges. Raise ``UserError`` for one that there is not, or
    that has ended.
    """
    known = {x.range_id: x for x in leases}
    found = []
    for name in dict.fromkeys(names):
        lease = known.get(RangeId(name))
        if lease is None:
            raise UserError(no_lease(name, known))
        if lease.ended:
            raise UserError(f"range {name} has ended: its successors have its keys now")
        found.append(lease)
    return found


def meant(leases: Collection[Lease], names: Sequence[str]) -> list[Lease]:
    """Return the leases of these ranges; without any, all that have not ended."""
    if names:
        return named(leases, names)
    return sorted((x for x in leases if not x.ended), key=lambda x: x.range_id)


async def pause_ranges(
    container: LeaseContainer, names: Sequence[str], reason: str
) -> list[Said]:
    """Pause these ranges, or all. Raise ``UserError``, and what containers raise."""
    before = meant(await container.list(), names)
    changed = await pausing.pause(container, [x.range_id for x in before], reason)
    return [Said(_paused(x, changed)) for x in before]


def _paused(lease: Lease, changed: Collection[RangeId]) -> str:
    if lease.range_id in changed:
        return f"{lease.range_id}: paused{_still_read(lease)}"
    if lease.paused is not None:
        return f"{lease.range_id}: was paused before: {lease.paused}"
    return f"{lease.range_id}: has ended, or is paused by now"


def _still_read(lease: Lease) -> str:
    if lease.owner is None:
        return ""
    return f"; {lease.owner} finishes what it has in hand and releases it"


async def resume_ranges(container: LeaseContainer, names: Sequence[str]) -> list[Said]:
    """Resume these ranges, or all that are paused. Otherwise as ``pause_ranges``."""
    before = meant(await container.list(), names)
    changed = await pausing.resume(container, [x.range_id for x in before] if names else None)
    rest = [x for x in names if RangeId(x) not in changed]
    return [
        *(Said(f"{x}: resumed") for x in changed),
        *(Said(f"{x}: was not paused") for x in rest),
    ]


async def release_range(
    container: LeaseContainer, name: str, settings: LeaseSettings
) -> list[Said]:
    """Take the lease of a range from its owner. Raise ``UserError``, and what containers
    raise.
    """
    (lease,) = named(await container.list(), [name])
    try:
        before = await release(container, lease.range_id)
    except LeaseGone as error:
        raise UserError(str(error)) from error
    if before is None:
        return [Said(f"{name}: has no owner; there is nothing to release")]
    return [
        Said(
            f"{name}: taken from {before.owner}; its epoch {before.epoch} is over, and nothing "
            f"that {before.owner} still writes under it counts."
        ),
        Said(
            f"The next owner continues from {before.continuation}: what was delivered since "
            f"then is delivered again."
            if before.continuation is not None
            else str(CheckpointMissing(before))
        ),
        Said(
            f"If {before.owner} is alive, it learns of this within "
            f"{settings.balance_interval:g} s (its balance_interval), and its observer may be "
            f"called until then. If it is stuck, stop it."
        ),
    ]


def check_position(names: Sequence[str], to: str) -> None:
    """Raise ``UserError`` for a position that these ranges, or all, cannot have."""
    try:
        start = start_in(to)
    except ValueError as error:
        raise UserError(str(error)) from error
    if start is None and len(names) != 1:
        raise UserError(
            f"{to!r} can only be a continuation, which is a position in one range: name that "
            f"one, or move all of them to another position: {RESET_FORMS}"
        )


async def planned_moves(
    feed: Feed, container: LeaseContainer, leases: Sequence[Lease], to: str
) -> list[Move]:
    """Settle where to move ranges, without moving any. Raise ``UserError`` with the forms of
    a position for what is none.
    """
    try:
        return [await planned(feed, container, x.range_id, to) for x in leases]
    except FeedRefused as error:
        if start_in(to) is not None:
            raise
        raise UserError(f"{to!r} is no position to move to: {RESET_FORMS}. {error}") from error


def move_question(moves: Sequence[Move]) -> str:
    return f"Move {counted(len(moves), 'range')}?"


def move_means(move: Move) -> str:
    return repeats(move.again)


async def carry_out_move(container: LeaseContainer, move: Move) -> Said:
    """Raise what containers raise."""
    try:
        await carry_out(container, move)
    except RangeInUse as error:
        return Said(f"{move.range_id}: not moved: {error}", failed=True)
    more = "; it is paused, changefeed resume continues it" if move.lease.paused else ""
    return Said(f"{move.range_id}: moved to {move.to}{more}")
