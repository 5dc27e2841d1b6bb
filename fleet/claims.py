"""Pausing, resuming and releasing ranges, from outside of any host.

A paused lease keeps its checkpoint. Its owner notices with its next renewal, or its next
listing, finishes what it has in hand and releases it; no host takes it until it is resumed.
What a command has paused for a moment is its own: to resume all leaves that out, and each run
of a command has a reason of its own, so that two of them never take a range for theirs.

To release a lease takes it from its owner: a new epoch begins, that belongs to no host. From
then on what the former owner writes is refused, checkpoints too, and any other host may acquire
the lease at once. What it has in hand is delivered again to the next owner.

Limits: a former owner that lives learns of it with its next listing, or its next write;
until then its observer is still called, and so may be that of the next owner.
The epoch in the observer's context distinguishes the two. A worker whose observer is stuck
without a time limit never ends; while it lives, its host holds on to a range that it
cannot read, and takes no new lease of that range, even if the plan gives it to this host.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.fleet.phrases import Outcome, named_leases, open_or_named_leases
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict, checkpoint_is_lost
from changefeed.leases.lease import Lease
from changefeed.leases.updating import evict_now, update_lease
from changefeed.runtime.errors import UserError

PAUSE_MEANS = (
    "Their owners finish their current batch, checkpoint and release them. Ranges that begin "
    "later, as by a split, are not paused."
)
RESUME_MEANS = "Read paused ranges again, from their checkpoints on."
RELEASE_MEANS = (
    "Hosts do this by themselves with what has expired. It is for not waiting, and for an "
    "owner that renews but is stuck; stop that one as well. What the owner had in hand is "
    "delivered again."
)

SPLITTING: Final = "being split (changefeed range split)"
MERGING: Final = "being merged (changefeed range merge)"


@dataclass(frozen=True, slots=True)
class Claim:
    """One run of a command that pauses ranges while it works."""

    command: str
    run: str = field(default_factory=lambda: uuid4().hex[:8])

    @property
    def reason(self) -> str:
        """Why its ranges are paused: no other run says the same."""
        return f"{self.command} {self.run}"


def is_paused_by(command: str, lease: Lease) -> bool:
    """Whether some run of the command has paused it, which may have died since."""
    return lease.paused is not None and lease.paused.startswith(command)


async def pause(
    container: LeaseContainer, range_ids: Collection[RangeId] | None, reason: str
) -> list[RangeId]:
    """Pause these ranges, or all; return those that were not paused, nor ended, before.

    Raise ``LeaseConflict`` if others kept writing to a lease, and what containers raise;
    what was paused by then stays paused.
    """
    return await _change_all(
        container,
        range_ids,
        lambda lease: None if lease.paused is not None else lease.paused_because(reason),
    )


async def resume(
    container: LeaseContainer, range_ids: Collection[RangeId] | None
) -> list[RangeId]:
    """Resume these ranges, or all; return those that were paused. Otherwise as ``pause``.

    All are those that no command has paused while it splits or merges them. To resume one of
    these undoes a merge that was cut off: all that it has ended or stopped goes on, too.
    """
    if range_ids is None:
        return await _change_all(container, None, _resumed_unless_in_hand)
    undone = await let_go(container, range_ids)
    return sorted(undone + await _change_all(container, range_ids, _resumed))


async def let_go(container: LeaseContainer, range_ids: Collection[RangeId]) -> list[RangeId]:
    """Let these go on as before a merge that has come to nothing, of any run, and all that
    were to be merged with them; return those that were stopped.
    """
    undone = await _undo_merges(container, range_ids)
    return await go_on(container, sorted({*range_ids, *undone}), MERGING)


async def go_on(
    container: LeaseContainer, range_ids: Iterable[RangeId], reason: str
) -> list[RangeId]:
    """Resume those of the ranges that are stopped for this reason, of one run or of any run of
    a command; return these.
    """

    def resumed(lease: Lease) -> Lease | None:
        return _resumed(lease) if is_paused_by(reason, lease) else None

    return [x for x in range_ids if await update_lease(container, x, resumed) is not None]


def _resumed(lease: Lease) -> Lease | None:
    return None if lease.paused is None else lease.paused_because(None)


def _resumed_unless_in_hand(lease: Lease) -> Lease | None:
    in_hand = any(is_paused_by(x, lease) for x in (SPLITTING, MERGING))
    return None if in_hand else _resumed(lease)


async def _undo_merges(
    container: LeaseContainer, range_ids: Collection[RangeId]
) -> set[RangeId]:
    """Undo merges that still have one of these to end; return all that they have to end."""
    leases = await container.list()
    merged = {x for x in map(merged_into, leases) if x is not None}
    parts = [{x.range_id for x in leases if _is_to_end_in(y, x)} for y in merged]
    undone = {y for x in parts if not x.isdisjoint(range_ids) for y in x}
    for name in sorted(undone):  # then no run that lives can end it any more
        await update_lease(container, name, _taken_over)
    await reopen_beside(container, undone)
    return undone


async def reopen_beside(container: LeaseContainer, range_ids: Collection[RangeId]) -> None:
    """Let go on what has ended for a merge which was to end one of these, and cannot any more.

    The merged range has not come, as these have keys of it.
    """
    leases = await container.list()
    kept = [x for x in leases if x.range_id in range_ids]
    for lease in leases:
        merged = merged_into(lease)
        if merged is not None and any(_is_to_end_in(merged, x) for x in kept):
            await update_lease(container, lease.range_id, Lease.reopened, ended=True)


def merged_into(lease: Lease) -> FeedRange | None:
    """Return the range that a merge has ended it for."""
    end = lease.end
    return end.children[0].range if end is not None and end.by == "merge" else None


def _is_to_end_in(merged: FeedRange, lease: Lease) -> bool:
    """Whether a lease stands in the way of a merged range; what comes of that one is later."""
    earlier = lease.range.generation < merged.generation
    return not lease.ended and earlier and merged.covers(lease.range)


def _taken_over(lease: Lease) -> Lease | None:
    is_stopped = is_paused_by(MERGING, lease)
    return lease.paused_because(Claim(MERGING).reason) if is_stopped else None


async def _change_all(
    container: LeaseContainer,
    range_ids: Collection[RangeId] | None,
    change: Callable[[Lease], Lease | None],
) -> list[RangeId]:
    listed = sorted(x.range_id for x in await container.list() if not x.ended)
    wanted = [x for x in listed if range_ids is None or x in range_ids]
    return [x for x in wanted if await update_lease(container, x, change) is not None]


async def release(container: LeaseContainer, range_id: RangeId) -> Lease | None:
    """Take a lease from its owner; return it as it was, ``None`` if no host has it.

    Raise ``LeaseConflict`` if there is no such lease, or others kept writing to it, and what
    containers raise.
    """
    taken = await evict_now(container, range_id, lambda lease: lease.owner is not None)
    return None if taken is None else taken[0]


# With the sentences that say what was done


async def pause_ranges(
    container: LeaseContainer, names: Sequence[str], reason: str
) -> list[Outcome]:
    """Pause these ranges, or all. Raise ``UserError``, and what containers raise."""
    before = open_or_named_leases(await container.list(), names)
    changed = await pause(container, [x.range_id for x in before], reason)
    return [Outcome(_paused(x, changed)) for x in before]


def _paused(lease: Lease, changed: Collection[RangeId]) -> str:
    if lease.range_id in changed:
        return f"{lease.range_id}: paused{_still_read(lease)}"
    if lease.paused is not None:
        return f"{lease.range_id}: already paused: {lease.paused}"
    return f"{lease.range_id}: has ended, or is paused by now"


def _still_read(lease: Lease) -> str:
    if lease.owner is None:
        return ""
    return f"; {lease.owner} finishes what it has in hand and releases it"


async def resume_ranges(container: LeaseContainer, names: Sequence[str]) -> list[Outcome]:
    """Resume these ranges, or all that are paused. Otherwise as ``pause_ranges``."""
    before = open_or_named_leases(await container.list(), names)
    changed = await resume(container, [x.range_id for x in before] if names else None)
    rest = [x for x in names if RangeId(x) not in changed]
    return [
        *(Outcome(f"{x}: resumed") for x in changed),
        *(Outcome(f"{x}: was not paused") for x in rest),
    ]


async def release_range(
    container: LeaseContainer, name: str, *, listing_every: float
) -> list[Outcome]:
    """Take the lease of a range from its owner, which lists leases every so many seconds.
    Raise ``UserError``, and what containers raise.
    """
    (lease,) = named_leases(await container.list(), [name])
    try:
        before = await release(container, lease.range_id)
    except LeaseConflict as error:
        raise UserError(str(error)) from error
    if before is None:
        return [Outcome(f"{name}: has no owner; there is nothing to release")]
    return [
        Outcome(
            f"{name}: taken from {before.owner}; its epoch {before.epoch} is over, and nothing "
            f"that {before.owner} still writes under it counts."
        ),
        Outcome(
            f"The next owner continues from {before.position}: what was delivered since "
            f"then is delivered again."
            if before.position is not None
            else checkpoint_is_lost(before.range_id)
        ),
        Outcome(
            f"If {before.owner} is alive, it learns of this within {listing_every:g} s, and "
            f"its observer may be called until then. If it is stuck, stop it."
        ),
    ]
