"""Leases for the ranges that a feed has: creating what is missing, forgetting what is over."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from changefeed.feeds.errors import FeedUnavailable, RangeUnknown
from changefeed.feeds.feed import (
    Continuation,
    Feed,
    FeedRange,
    RangeId,
    RemembersRanges,
    StartAt,
    Successor,
)
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier, only
from changefeed.host.settings import FeedSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict, LeaseGone
from changefeed.leases.lease import Lease

_AT_ONCE = 8
_AGAIN_AFTER = 5.0
_SUPERSEDED = "its keys have gone to other ranges"


class RangeSynchronizer:
    """Looks for new ranges now and then. ``changed`` is told when leases came or went.

    It goes on beside the rounds of balancing, which a slow feed must not hold up.
    """

    def __init__(
        self,
        feed: Feed,
        container: LeaseContainer,
        settings: FeedSettings,
        *,
        events: HostEvents,
        changed: Callable[[], None],
    ) -> None:
        self._feed = feed
        self._container = container
        self._settings = settings
        self._events = events
        self._changed = changed

    async def run(self) -> None:
        """Raise what asking again cannot mend."""
        while True:
            wait = self._settings.ranges_interval
            try:
                await self._tend()
            except* (ContainerUnavailable, FeedUnavailable, RangeUnknown) as errors:
                wait = min(wait, _AGAIN_AFTER)
                self._events.retrying("ranges", only(errors), wait)
            await asyncio.sleep(wait)

    async def _tend(self) -> None:
        """Create and delete leases as the ranges ask for it.

        The ranges are asked for *after* the leases were listed: a range that is gone from
        them is gone for good, and one whose lease is missing was not finished by anybody.
        """
        leases = await self._container.list()
        if isinstance(self._feed, RemembersRanges):
            self._feed.remember_ranges(x.range for x in leases)
        ranges = await self._feed.ranges()
        try:
            created = await create_missing(
                self._feed,
                self._container,
                self._settings.start_at,
                ranges=ranges,
                leases=leases,
                events=self._events,
            )
        except RangeUnknown:
            self._changed()  # the other leases are there
            raise
        forgotten = await forget_finished(
            self._container, ranges=ranges, leases=leases, events=self._events
        )
        if created or forgotten:
            self._changed()


async def create_missing(
    feed: Feed,
    container: LeaseContainer,
    start: StartAt,
    *,
    ranges: Sequence[FeedRange],
    leases: Sequence[Lease],
    events: HostEvents,
) -> bool:
    """Create a lease for each range without one, its start settled once and for all.

    Return whether any was missing. ``ranges`` come parents before their children. Raise
    ``RangeUnknown`` in the end if one has ended since, and is gone from the next list.
    """
    missing = _missing(ranges, leases)
    if missing and isinstance(feed, RemembersRanges):
        missing = _held_by_none(missing, [*leases, *await container.list()])
    fresh = {x.id for x in missing}  # all other parents of theirs have ended
    few = asyncio.Semaphore(_AT_ONCE)
    unknown: list[RangeUnknown] = []

    async def create(found: FeedRange) -> None:
        async with few:
            try:
                position = await feed.resolve_start(found.id, start)
            except RangeUnknown as error:
                unknown.append(error)
                return
            wanted = Lease(range=_waiting_for(found, fresh), continuation=position)
            if not (await container.create(wanted)).epoch:
                events.created(wanted)

    async with asyncio.TaskGroup() as group:
        for feed_range in missing:
            group.create_task(create(feed_range))
    if unknown:
        raise unknown[0]
    return bool(missing)


def _held_by_none(missing: Sequence[FeedRange], leases: Sequence[Lease]) -> list[FeedRange]:
    """Leave out the ranges of which a lease holds keys, under whatever name.

    A listing may lack some of the leases that were there. Where ranges keep their names, to
    create one of them once more changes nothing; a range that is read in parts would be
    read twice. So each of two listings has to say that nobody holds its keys, nor has.
    """
    return [x for x in missing if not any(x.shares_keys_with(y.range) for y in leases)]


async def create_successors(
    ended: FeedRange,
    successors: Collection[Successor],
    *,
    feed: Feed,
    container: LeaseContainer,
    retrier: Retrier,
    events: HostEvents,
    check: Callable[[], None],
) -> None:
    """Create the leases of the ranges that an ended one goes on in, if they are missing.

    ``check`` raises once the ended range may be another's, and nothing is written then.
    A range that was merged waits for its other parents: for those that have a lease and
    have not ended, and for those whose lease is yet to come, because they can still be
    read and were not read yet. Not for those that are named though they held other keys:
    whoever reads what these go on in may delete their leases.
    """

    async def write(doing: str, call: Callable[[], Awaitable[object]]) -> None:
        async def checked() -> None:
            check()
            await call()

        await retrier.ask(doing, checked)

    async def delete_superseded(lease: Lease) -> bool:
        read = partial(container.read, lease.range_id)
        while (stored := await retrier.ask("read", read)) is not None:
            if not _waits_for(ended, stored) or not _is_superseded(stored, starts, feed):
                return False
            forget = partial(_forget, container, stored, events, _SUPERSEDED)
            await write("delete", forget)  # unless others have just written to it
        return True

    leases = await retrier.ask("list", container.list)
    starts = {x.range.id: x.start for x in successors}
    waiting = [x for x in leases if _waits_for(ended, x)]
    gone = {x.range_id for x in waiting if await delete_superseded(x)}
    unfinished = {x.id: x for x in await retrier.ask("ranges", feed.ranges)}
    for lease in leases:
        unfinished[lease.range_id] = lease.range
        if lease.ended or lease.range_id in gone:
            del unfinished[lease.range_id]
    for successor in successors:
        before = {x for x, y in unfinished.items() if _may_share_keys(y, successor.range)}
        wanted = Lease(
            range=_waiting_for(successor.range, before), continuation=successor.start
        )
        await write("create", partial(container.create, wanted))


def _waits_for(ended: FeedRange, lease: Lease) -> bool:
    """Whether nobody has had a lease yet, as it holds keys of a range that is being read."""
    return (
        not (lease.epoch or lease.ended)
        and ended.id in lease.range.parents
        and lease.range.shares_keys_with(ended)
    )


def _is_superseded(lease: Lease, starts: Mapping[RangeId, Continuation], feed: Feed) -> bool:
    """Whether a lease that waits for an ended range is not what that goes on in now.

    An owner before us may have come as far as this, and died, and where the feed names
    those that hold the keys today, it may name others since. Two leases would then hold the
    same keys; or the range lived on, and what waits for it would begin too early.
    """
    if lease.range_id not in starts:
        return True
    return isinstance(feed, RemembersRanges) and lease.continuation != starts[lease.range_id]


def _may_share_keys(a: FeedRange, b: FeedRange) -> bool:
    return not (a.high and b.high) or a.shares_keys_with(b)


def _waiting_for(found: FeedRange, unfinished: Collection[RangeId]) -> FeedRange:
    """Leave out the parents that nobody reads any more."""
    return replace(found, parents=tuple(x for x in found.parents if x in unfinished))


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
    events: HostEvents,
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
                await _forget(container, lease, events, "its successors go on")
                forgotten = True
    return forgotten


async def _has_checkpoint(container: LeaseContainer, range_id: RangeId) -> bool:
    lease = await container.read(range_id)
    return lease is None or lease.ended or lease.checkpoint_epoch > 0


async def _forget(
    container: LeaseContainer, lease: Lease, events: HostEvents, reason: str
) -> None:
    try:
        await container.delete(lease)
    except (LeaseConflict, LeaseGone):
        return  # another host did, or will
    events.forgotten(lease, reason)
