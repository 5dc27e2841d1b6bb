"""Splitting a range without the feed, and merging ranges whose keys touch.

A range is stopped, and ends where it stands in sub-ranges of its keys, in one write: before
that nothing has happened, after it they are read. Each begins with the checkpoint of the whole,
holes included. Nothing is lost or repeated, and the order by key holds as at each split.

Ranges that are merged must be at one position. They are where their positions are equal, or
where each has been read to its end, and that is the same for all. What is done behind keys that
wait would come again, so a merge waits for them as well. Positions in a feed that is
being written to differ, and the earliest would repeat what others have checkpointed. So a merge
waits for a moment of rest, and is given up without one. Each range then ends in the merged one,
which comes when the last has ended. A merge that was cut off between two of these ends is
completed by asking for it again, or undone by ``resume``, or by a merge of one of its ranges
with others; until then its ranges stay paused. One that is refused lets them go on.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from itertools import pairwise

from changefeed.feeds.feed import (
    Child,
    Feed,
    FeedRange,
    Position,
    RangeEnded,
    RangeId,
)
from changefeed.fleet.claims import (
    MERGING,
    SPLITTING,
    Claim,
    go_on,
    is_paused_by,
    let_go,
    merged_into,
    reopen_beside,
)
from changefeed.fleet.phrases import named_leases
from changefeed.fleet.stopping import (
    LeasedFeed,
    claim_range,
    finish,
    still_claimed,
    stopped_ranges,
    whole_lease,
)
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import Lease, RangeEnd, require_checkpoint, require_position
from changefeed.runtime.errors import UserError

_NEXT_ATTEMPT = 1.0


async def split(leased: LeasedFeed, range_id: RangeId, into: int) -> Sequence[FeedRange]:
    """Replace a range by ``into`` sub-ranges; return these.

    Raise ``UserError`` where it cannot be done, and what feed and containers raise; the
    range is then read on as before.
    """
    leases = await leased.leases()
    (lease,) = open_leases(leases, [range_id], SPLITTING)
    leased.feed.split(lease.range, into)  # refused before it is stopped
    async with stopped_ranges(leased, [range_id], Claim(SPLITTING)) as stopped:
        (whole,) = stopped
        end = RangeEnd.of_split(leased.feed, whole.range, into, require_checkpoint(whole))
        await finish(leased.container, whole, end)
    return [x.range for x in end.children]


async def merge(
    leased: LeasedFeed, range_ids: Sequence[RangeId], *, patience: float
) -> FeedRange:
    """Replace adjacent sub-ranges by one of all their keys; return that range.

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
            await let_go(leased.container, range_ids)  # an attempt was cut off
            raise UserError(
                f"ranges {', '.join(range_ids)} are at different positions, or keys wait in "
                f"them: a merge waits until all have been read to the end, and the feed rests "
                f"for a moment. They are read on as before; try again when their lag is 0"
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
    """Merge ranges if they are at one position."""
    leases = await leased.leases()
    found = {x.range_id: x for x in leases}
    try:
        joined = _joined(leased.feed, named_leases(leases, range_ids, also_ended=True))
        into = {x: merged_into(found[x]) for x in range_ids}
        if begun := [x for x, y in into.items() if y is not None and y.id == joined.id]:
            rest = [found[x] for x in range_ids if x not in begun]
            done = await _completed(leased.container, rest, begun, claim)
            return joined if done else None
        open_leases(leases, range_ids, MERGING)
    except UserError:  # the feed may have split since an attempt that was cut off
        await let_go(leased.container, range_ids)
        raise
    stored = [await whole_lease(leased.container, x) for x in range_ids]
    if await _position_of_all(leased.feed, stored) is None:
        return None  # without stopping any
    async with stopped_ranges(leased, range_ids, claim) as stopped:
        await reopen_beside(leased.container, range_ids)  # another merge was cut off
        position = await _position_of_all(leased.feed, stopped)
        if position is None:
            await go_on(leased.container, range_ids, claim.reason)
            return None
        # What goes on then agrees with each.
        ready = [await _advanced(leased.container, x, position) for x in stopped]
    end = RangeEnd(children=(Child(range=joined, start=position),), by="merge")
    await _finish_all(leased.container, ready, end)
    return joined


async def _finish_all(
    container: LeaseContainer, stopped: Sequence[Lease], end: RangeEnd
) -> None:
    """End all of them; where others have written to one, let all go on as before."""
    try:
        for lease in stopped:
            await finish(container, lease, end)
    except LeaseConflict:
        await let_go(container, [x.range_id for x in stopped])
        raise


async def _completed(
    container: LeaseContainer, rest: Sequence[Lease], begun: Collection[RangeId], claim: Claim
) -> bool:
    """End the rest of the ranges of a merge that was cut off, as listed, if they are where it
    has left them; else let all go on as before.
    """
    if not rest:
        return True
    names = [x.range_id for x in rest]
    if all(is_paused_by(MERGING, x) for x in rest):
        for name in names:
            await claim_range(container, name, claim)
        left = [await still_claimed(container, x, claim) for x in names]
        ended = [await container.read(x) for x in begun]
        ends = {None if x is None else x.end for x in ended}
        end = ends.pop() if len(ends) == 1 else None
        if end is not None and all(x.position == end.children[0].start for x in left):
            for lease in left:
                await finish(container, lease, end)
            return True
    await let_go(container, [*begun, *names])
    return False


async def _position_of_all(feed: Feed, leases: Collection[Lease]) -> Position | None:
    """Return the position at which all are: the same, and nothing behind it is done, or the end
    of each.

    Raise ``UserError`` for a range that goes on in others.
    """
    checkpoints = {require_checkpoint(x) for x in leases}
    found = checkpoints.pop()
    if not checkpoints and found.high is None:
        return found.position
    ends = set[Position]()
    for lease in leases:
        try:
            page = await feed.read(lease.range, require_position(lease), 1)
        except RangeEnded as ended:
            raise UserError(f"{ended}, as its reader is about to find out") from ended
        if page.changes:
            return None
        ends.add(page.position)
    return ends.pop() if len(ends) == 1 else None


def open_leases(
    leases: Collection[Lease], range_ids: Sequence[RangeId], command: str
) -> Sequence[Lease]:
    """Return the leases that a command is to stop. Raise ``UserError`` for what cannot be."""
    found = named_leases(leases, range_ids)
    for lease in found:
        name = lease.range_id
        if not lease.epoch:
            raise UserError(
                f"range {name} has not been read yet: try again when a host has taken it"
            )
        if lease.paused is not None and not is_paused_by(command, lease):
            raise UserError(f"range {name} is paused ({lease.paused}): resume it first")
    return found


def _joined(feed: Feed, leases: Collection[Lease]) -> FeedRange:
    """Raise ``UserError`` for ranges that do not touch, and those whose keys are not known."""
    parts = sorted((x.range for x in leases), key=lambda x: x.low)
    touching = [x.high == y.low for x, y in pairwise(parts)]
    if not touching or not all(touching) or not parts[0].high:
        raise UserError("name two or more ranges whose keys touch; changefeed status has them")
    return feed.merge(parts)


async def _advanced(container: LeaseContainer, lease: Lease, position: Position) -> Lease:
    """Checkpoint a stopped range where all of them are."""
    if lease.position == position:
        return lease
    return await container.checkpoint(lease.advanced_to(position).stamped(stamp=time.time()))
