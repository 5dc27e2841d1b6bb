"""Leases for the ranges that a feed has: creating what is missing, forgetting what is over."""

import asyncio
from collections.abc import Collection, Sequence

from feeds.feed import Feed, FeedRange, RangeId, StartAt
from leases.container import LeaseContainer
from leases.errors import LeaseConflict, LeaseGone
from leases.lease import Lease

from .journal import Journal

_AT_ONCE = 8


async def create_missing(
    feed: Feed,
    container: LeaseContainer,
    start: StartAt,
    *,
    ranges: Sequence[FeedRange],
    leases: Sequence[Lease],
    journal: Journal,
) -> bool:
    """Create a lease for each range without one, its start settled once and for all.

    Return whether any was missing. ``ranges`` come parents before their children.
    """
    missing = _missing(ranges, leases)
    few = asyncio.Semaphore(_AT_ONCE)

    async def create(missing: FeedRange) -> None:
        async with few:
            position = await feed.settle(missing.id, start)
            wanted = Lease(range=missing, continuation=position)
            if not (await container.create(wanted)).epoch:
                journal.created(wanted)

    async with asyncio.TaskGroup() as group:
        for feed_range in missing:
            group.create_task(create(feed_range))
    return bool(missing)


def _missing(ranges: Sequence[FeedRange], leases: Sequence[Lease]) -> list[FeedRange]:
    """Pick the ranges that need a lease from here.

    A range with an ancestor that is still being read gets its lease, and its start, from
    whoever reads its parent to the end; settled here it would come before its time.
    """
    known = {x.range_id for x in leases}
    waiting = {x.range_id for x in leases if not x.ended}
    missing = []
    for found in ranges:
        if found.id in known:
            continue
        if waiting.isdisjoint(found.parents):
            missing.append(found)
        else:
            waiting.add(found.id)
    return missing


async def forget_finished(
    container: LeaseContainer,
    *,
    ranges: Collection[FeedRange],
    leases: Sequence[Lease],
    journal: Journal,
) -> bool:
    """Delete the leases of ended ranges that nobody needs any more.

    A tombstone stays as long as the feed still lists its range (else a lease would be
    created for it anew), and until each of its successors has a checkpoint of its own.
    ``ranges`` must be younger than ``leases``. Return whether any was deleted.
    """
    listed = {x.id for x in ranges}
    forgotten = False
    for lease in leases:
        if lease.ended and lease.range_id not in listed:
            successors = [x for x in leases if lease.range_id in x.range.parents]
            if all([await _has_checkpoint(container, x.range_id) for x in successors]):
                await _forget(container, lease, journal)
                forgotten = True
    return forgotten


async def _has_checkpoint(container: LeaseContainer, range_id: RangeId) -> bool:
    lease = await container.read(range_id)
    return lease is None or lease.ended or lease.checkpoint_epoch > 0


async def _forget(container: LeaseContainer, lease: Lease, journal: Journal) -> None:
    try:
        await container.delete(lease)
    except (LeaseConflict, LeaseGone):
        return  # another host did, or will
    journal.forgotten(lease)
