"""Merging ranges whose keys touch: parts that were split before.

They must be at one position. They are where their positions are equal, or where each has been
read to its end, and that is the same for all: positions in a feed that is being written to
differ, and the earliest would repeat what others have checkpointed. So a merge waits for a
moment of rest, and is given up without one. The merged lease is created there, waits, and each
part is marked as ended. A merge that was cut off between two of these writes is completed by
asking for it again; until then its ranges stay paused. One that is refused lets them go on.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from changefeed.feeds.feed import Continuation, Feed, FeedRange, RangeEnded, RangeId
from changefeed.host.parts.leased_feed import LeasedFeed, leases_of, open_leases
from changefeed.host.parts.stopping import (
    TRIES,
    Stopped,
    claim_range,
    finish,
    go_on,
    reopen,
    still_claimed,
    stopped_ranges,
    written,
)
from changefeed.host.workers.parts import forget, refuse_taken
from changefeed.host.workers.successors import is_left_over, wait_for_parts
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict, LeaseGone
from changefeed.leases.lease import Lease, require_continuation
from changefeed.leases.operations.pause import MERGING, Claim, is_paused_by
from changefeed.leases.operations.update import update_lease
from changefeed.runtime.errors import UserError

_NEXT_ATTEMPT = 1.0


async def merge(
    leased: LeasedFeed, range_ids: Sequence[RangeId], *, patience: float
) -> FeedRange:
    """Replace the leases of adjacent parts by one of all their keys; return that range.

    Wait for up to ``patience`` seconds until they are at one position. Raise ``UserError``
    where they are not, or it cannot be done, and what feed and containers raise.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + patience
    claim = Claim(MERGING)
    waiting = False
    while True:
        merged = await _merge_now(leased, range_ids, claim)
        if merged is not None:
            return merged
        if clock() >= until:
            await go_on(leased.container, range_ids, MERGING)  # an attempt was cut off
            raise UserError(
                f"ranges {', '.join(range_ids)} are at different positions: a merge waits "
                f"until all have been read to the end, and the feed rests for a moment. They "
                f"are read on as before; try again when their lag is 0"
            )
        if not waiting:
            leased.say(
                f"waiting for up to {patience:g} s until {', '.join(range_ids)} are read to "
                f"their end at one moment"
            )
            waiting = True
        await asyncio.sleep(_NEXT_ATTEMPT)


async def _merge_now(
    leased: LeasedFeed, range_ids: Sequence[RangeId], claim: Claim
) -> FeedRange | None:
    """Merge parts if they are at one position."""
    leases = await leased.leases()
    found = {x.range_id: x for x in leases}
    try:
        joined = _joined(leased.feed, found, range_ids)
    except UserError:  # the feed may have split since an attempt that was cut off
        await go_on(leased.container, [x for x in range_ids if x in found], MERGING)
        raise
    begun = await _begun(leased.container, joined, found)
    if begun is not None and any(found[x].ended for x in range_ids):
        ours = [x for x in range_ids if not _went_on(leases, x, beside=joined.id)]
        return joined if await _completed(leased, joined, range_ids, ours, claim) else None
    try:
        open_leases(leases, range_ids, MERGING)
    except UserError:
        await go_on(leased.container, range_ids, MERGING)  # an attempt was cut off
        raise
    if begun is None:
        refuse_taken(leases, [joined])
    stored = [await leased.container.read(x) for x in range_ids]
    if await _position_of_all(leased.feed, [x for x in stored if x is not None]) is None:
        return None  # without stopping any
    stopped = await _at_one_position(leased, joined, range_ids, claim)
    if stopped is None:
        return None
    await _finish_all(leased.container, joined, stopped, claim)
    return joined


async def _at_one_position(
    leased: LeasedFeed, joined: FeedRange, range_ids: Sequence[RangeId], claim: Claim
) -> Stopped | None:
    """Stop parts, and create the lease that goes on where they are; or let them go on."""
    container = leased.container
    aligned: Stopped | None = None
    with suppress(_Apart):
        async with stopped_ranges(leased, range_ids, claim) as stopped:
            left_over = _left_over(leased.feed, await container.list(), joined, range_ids)
            position = await _position_of_all(leased.feed, stopped.leases)
            if position is None:
                raise _Apart
            leases = [await _advanced(container, x, position) for x in stopped.leases]
            for lease in left_over:
                stopped.check()
                await _end_unread(container, lease.range_id)
            merged = Lease(range=joined, continuation=position)
            await _create_merged(container, merged, stopped.check)
            await wait_for_parts(leased.feed, container)
            aligned = replace(stopped, leases=leases)
    return aligned


async def _finish_all(
    container: LeaseContainer, joined: FeedRange, stopped: Stopped, claim: Claim
) -> None:
    """End all of them; where others have written to one, let all go on as before."""
    for n, lease in enumerate(stopped.leases):
        try:
            await finish(container, lease)
        except (LeaseConflict, LeaseGone):
            stopped.check()  # else another run may be about to complete it
            await _undone(container, joined, [x.range_id for x in stopped.leases[:n]])
            for after in stopped.leases[n:]:
                with suppress(ContainerUnavailable, LeaseConflict):
                    await go_on(container, [after.range_id], claim.reason)
            raise


async def _undone(
    container: LeaseContainer, joined: FeedRange, range_ids: Collection[RangeId]
) -> bool:
    """Let parts go on that were ended for a merge, unless a host reads what they became."""
    await _end_unread(container, joined.id)
    merged = await container.read(joined.id)
    if merged is not None and not merged.ended:
        return False
    for range_id in range_ids:
        await reopen(container, range_id)
    return True


async def _completed(
    leased: LeasedFeed,
    joined: FeedRange,
    range_ids: Sequence[RangeId],
    ours: Collection[RangeId],
    claim: Claim,
) -> bool:
    """End the rest of the parts of a merge that was cut off, if they are where it has left
    them; else let ``ours`` go on as before: not what another merge has ended.
    """
    container = leased.container
    stored = [await container.read(x) for x in range_ids]
    rest = [x for x in stored if x is not None and not x.ended]
    if None not in stored and all(is_paused_by(MERGING, x) for x in rest):
        for lease in rest:
            await claim_range(leased, lease.range_id, claim)
        left = [await still_claimed(container, x.range_id, claim) for x in rest]
        begun = await container.read(joined.id)
        if begun is not None and all(x.continuation == begun.continuation for x in left):
            for lease in left:
                await finish(container, lease)
            return True
    return not await _undone(container, joined, ours)


class _Apart(Exception):
    """The parts are not at one position."""


async def _position_of_all(feed: Feed, leases: Collection[Lease]) -> Continuation | None:
    """Return the position at which all parts are: the same, or the end of each.

    Raise ``UserError`` for a range that goes on in others.
    """
    positions = {require_continuation(x) for x in leases}
    if len(positions) == 1:
        return positions.pop()
    ends = set[Continuation]()
    for lease in leases:
        try:
            page = await feed.read(lease.range, require_continuation(lease), 1)
        except RangeEnded as ended:
            raise UserError(f"{ended}, as its reader is about to find out") from ended
        if page.changes:
            return None
        ends.add(page.continuation)
    return ends.pop() if len(ends) == 1 else None


def _joined(feed: Feed, found: dict[RangeId, Lease], range_ids: Sequence[RangeId]) -> FeedRange:
    """Raise ``UserError`` for ranges that do not touch, and those whose keys are not known."""
    parts = sorted((x.range for x in leases_of(found, range_ids)), key=lambda x: x.low)
    touching = [x.high == y.low for x, y in pairwise(parts)]
    if not touching or not all(touching) or not parts[0].high:
        raise UserError("name two or more ranges whose keys touch; changefeed status has them")
    return replace(feed.joined(parts), parents=tuple(x.id for x in parts))


async def _begun(
    container: LeaseContainer, joined: FeedRange, found: dict[RangeId, Lease]
) -> Lease | None:
    """Return the lease of a merge of these very parts that was cut off, whole."""
    lease = found.get(joined.id)
    if lease is None or lease.epoch or lease.ended or lease.range.parents != joined.parents:
        return None
    return await container.read(joined.id)


def _left_over(
    feed: Feed, leases: Collection[Lease], joined: FeedRange, merged: Collection[RangeId]
) -> Sequence[Lease]:
    """Return what waits for one of the parts that are merged: an attempt was cut off.

    Raise ``UserError`` where others of its parts have ended: no other lease has their keys.
    """
    found = [x for x in leases if _waits_for(x, joined, merged) and is_left_over(feed, x)]
    ended = {x.range_id for x in leases if x.ended}
    for lease in found:
        alone = {x for x in ended if not _went_on(leases, x, beside=lease.range_id)}
        if not alone.isdisjoint({*lease.range.parents} - {*merged}):
            names = " ".join(lease.range.parents)
            raise UserError(
                f"a merge of {names} was cut off after one of them had ended: complete it "
                f"first (changefeed merge {names})"
            )
    return found


def _went_on(leases: Collection[Lease], part: RangeId, *, beside: RangeId) -> bool:
    """Whether a part goes on in a lease other than ``beside``: another merge has ended it."""
    others = (x for x in leases if x.range_id != beside and (x.epoch or not x.ended))
    return any(part in x.range.parents for x in others)


def _waits_for(lease: Lease, joined: FeedRange, merged: Collection[RangeId]) -> bool:
    waits = not (lease.epoch or lease.ended) and not set(merged).isdisjoint(lease.range.parents)
    return waits and lease.range_id != joined.id and lease.range.shares_keys_with(joined)


async def _end_unread(container: LeaseContainer, range_id: RangeId) -> None:
    await update_lease(container, range_id, lambda x: None if x.epoch else x.finished())


async def _create_merged(
    container: LeaseContainer, wanted: Lease, check: Callable[[], None]
) -> None:
    """Create a lease that waits, or let that of an earlier attempt begin where it should."""
    for _ in range(TRIES):
        check()
        await container.create(wanted)
        stored = await container.read(wanted.range_id)
        if stored is not None:
            if stored.epoch:
                await forget(container, stored)
                raise UserError(
                    f"others have written the lease of {wanted.range_id}: try again"
                )
            if not stored.ended and _place(stored) == _place(wanted):
                return
            begun = replace(stored.begun_at(require_continuation(wanted)), range=wanted.range)
            with suppress(LeaseConflict, LeaseGone):
                await container.replace(begun)
    raise LeaseConflict(wanted, f"others wrote it {TRIES} times in a row")


def _place(lease: Lease) -> object:
    return lease.continuation, lease.range


async def _advanced(container: LeaseContainer, lease: Lease, position: Continuation) -> Lease:
    """Checkpoint a stopped part where all of them are: what goes on then agrees with each."""
    if lease.continuation == position:
        return lease
    return await container.checkpoint(written(lease.advanced_to(position)))
