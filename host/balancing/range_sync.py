"""Leases for the ranges that a feed has: creating what is missing, forgetting what is over."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
    ``owned`` returns the leases that this host may act upon.
    """

    def __init__(
        self,
        feed: Feed,
        container: LeaseContainer,
        settings: FeedSettings,
        *,
        events: HostEvents,
        changed: Callable[[], None],
        owned: Callable[[], Collection[Lease]],
    ) -> None:
        self._feed = feed
        self._container = container
        self._settings = settings
        self._events = events
        self._changed = changed
        self._owned = owned

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
        owned = {x.range_id for x in self._owned()}
        leases = await self._container.list()
        owned_throughout = [x for x in self._owned() if x.range_id in owned]
        await delete_echoes(self._container, owned_throughout, leases, events=self._events)
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
    after = _Succession(ended, feed, container, retrier, events, check)
    leases = await retrier.ask("list", container.list)
    going_on = {x.range.id for x in successors}
    waiting = [x for x in leases if _waits_for(ended, x) and x.range_id not in going_on]
    gone = {x.range_id for x in waiting if await after.end_superseded(x.range_id)}
    unfinished = {x.id: x for x in await retrier.ask("ranges", feed.ranges)}
    for lease in leases:
        unfinished[lease.range_id] = lease.range
        if lease.ended or lease.range_id in gone:
            del unfinished[lease.range_id]
    for successor in successors:
        before = {x for x, y in unfinished.items() if _may_share_keys(y, successor.range)}
        await after.create(_waiting_for(successor.range, before), successor.start)


@dataclass(frozen=True, slots=True)
class _Succession:
    """What is written of other leases by whoever has read a range to its end."""

    ended: FeedRange
    feed: Feed
    container: LeaseContainer
    retrier: Retrier
    events: HostEvents
    check: Callable[[], None]

    async def end_superseded(self, range_id: RangeId) -> bool:
        """End a lease that waits for the range; return whether it does not wait any more.

        It is not deleted: a write that creates it late would create it again.
        """
        while (stored := await self._read(range_id)) is not None:
            if not _waits_for(self.ended, stored):
                return stored.ended
            await self._write("end", partial(self._replace, stored.finished()))
            self.events.forgotten(stored, _SUPERSEDED)
        return True

    async def create(self, found: FeedRange, start: Continuation) -> None:
        """Create a lease; let one that an owner before us created begin where we are now."""
        wanted = Lease(range=found, continuation=start)
        await self._write("create", partial(self.container.create, wanted))
        while (stored := await self._read(found.id)) is not None:
            if not _begins_elsewhere(stored, self.ended, start, self.feed):
                return
            await self._write("create", partial(self._replace, stored.begun_at(start)))

    async def _read(self, range_id: RangeId) -> Lease | None:
        return await self.retrier.ask("read", partial(self.container.read, range_id))

    async def _write(self, doing: str, call: Callable[[], Awaitable[object]]) -> None:
        async def checked() -> None:
            self.check()
            await call()

        await self.retrier.ask(doing, checked)

    async def _replace(self, wanted: Lease) -> None:
        """Write it, unless others have just written it: it is then read again."""
        with suppress(LeaseConflict, LeaseGone):
            await self.container.replace(wanted)


def _waits_for(ended: FeedRange, lease: Lease) -> bool:
    """Whether nobody has had a lease yet, as it holds keys of a range that is being read."""
    return (
        not (lease.epoch or lease.ended)
        and ended.id in lease.range.parents
        and lease.range.shares_keys_with(ended)
    )


def _begins_elsewhere(stored: Lease, ended: FeedRange, start: Continuation, feed: Feed) -> bool:
    """Whether a lease that is there already does not begin where the ended range has come to.

    An owner before us may have come as far as this, and died. Where readers hand on their
    positions, the range may have lived on since, and the lease would begin too early. Or it
    was ended as superseded, and its keys have come back to it.
    """
    if stored.epoch:
        return False
    if stored.ended:
        return True
    moved_on = isinstance(feed, RemembersRanges) and stored.continuation != start
    return moved_on and _waits_for(ended, stored)


async def delete_echoes(
    container: LeaseContainer,
    owned: Collection[Lease],
    leases: Collection[Lease],
    *,
    events: HostEvents,
) -> None:
    """Delete the leases that nobody ever had and whose keys this host reads under others.

    Whoever begins with a range waits for those that hold keys of it, so there is no such
    lease, but for one: a write that was under way for long created a lease again that had
    been deleted. ``owned`` are leases that were this host's before, and still are after,
    ``leases`` were listed: its owner alone knows that a range has not ended since.
    """
    for lease in leases:
        if not lease.epoch and any(_echoes(lease, x) for x in owned):
            await _forget(container, lease, events, _SUPERSEDED)


def _echoes(lease: Lease, owned: Lease) -> bool:
    waits = owned.range_id in lease.range.parents
    same = owned.range_id == lease.range_id
    return not (waits or same) and lease.range.shares_keys_with(owned.range)


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
    created for it anew), and until each of its successors has a checkpoint of its own: until
    then, a write that creates it late finds it there.
    ``ranges`` must be younger than ``leases``. Return whether any was deleted.
    """
    listed = {x.id for x in ranges}
    forgotten = False
    for lease in leases:
        if lease.ended and lease.range_id not in listed:
            successors = [x for x in leases if _goes_on_in(lease, x)]
            if all([await _has_checkpoint(container, x.range_id) for x in successors]):
                await _forget(container, lease, events, "its successors go on")
                forgotten = True
    return forgotten


def _goes_on_in(ended: Lease, other: Lease) -> bool:
    """Whether a lease keeps a tombstone: it holds keys of it, and may not have been read.

    What was superseded before anybody had it has no descendants: it stays until others are
    reading its keys.
    """
    goes_on = not (ended.epoch or other.ended) and ended.range.shares_keys_with(other.range)
    return goes_on or ended.range_id in other.range.parents


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
