"""Leases for the ranges that a feed has: looking for what is missing, deleting what is over."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from random import Random

from changefeed.feeds.errors import FeedUnavailable, RangeRefused, RangeUnknown
from changefeed.feeds.feed import Feed, FeedRange, RangeId
from changefeed.host.balancing.deleted_leases import DeletedLeases
from changefeed.host.balancing.missing_leases import create_missing, not_read_in_parts
from changefeed.host.balancing.waiting_leases import (
    free_from_deleted_parents,
    waits_for_ever,
)
from changefeed.host.events import HostEvents
from changefeed.host.settings import FeedSettings
from changefeed.host.workers.successors import SUPERSEDED, delete_lease, read_descendants
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.lease import Lease
from changefeed.leases.operations.look_up import look_up
from changefeed.leases.parts import with_parts
from changefeed.leases.plan import KeyBounds
from changefeed.leases.remembering import LeaseMemory
from changefeed.runtime.clock import Clock, elapsed_time

_AGAIN_AFTER = 5.0
_SOONEST = 1.0  # a listing that flickers must not keep the feed busy
_LATER = (ContainerUnavailable, FeedUnavailable, RangeRefused, RangeUnknown)


class RangeSynchronizer:
    """Looks for new ranges now and then; calls ``changed`` when leases came or went.

    It runs beside the rounds of balancing, which a slow feed must not hold up.
    ``owned`` returns the leases that this host may act upon, and ``memory`` knows those
    that were there. Who read one that was deleted has ``patience`` seconds to create it again.
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
        memory: LeaseMemory,
        patience: float,
        random: Random,
        clock: Clock = elapsed_time,
    ) -> None:
        self._memory = memory
        self._deleted = DeletedLeases(memory, patience=patience, clock=clock)
        self._random = random
        self._feed = feed
        self._container = container
        self._settings = settings
        self._events = events
        self._changed = changed
        self._owned = owned
        self._now = asyncio.Event()
        self.ranges: Sequence[FeedRange] = ()
        """Those that the feed had when it was asked last."""

    def look_now(self) -> None:
        """Look without waiting for the interval: leases have vanished."""
        self._now.set()

    async def run(self) -> None:
        """Raise what asking again cannot mend."""
        while True:
            wait = self._settings.ranges_interval
            try:
                await self._synchronize()
                wait = min(wait, self._deleted.due_in)
            except _LATER as error:
                wait = min(wait, _AGAIN_AFTER)
                self._events.retrying("ranges", error, wait)
            await asyncio.sleep(min(wait, _SOONEST))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, wait - _SOONEST)):
                    await self._now.wait()
            self._now.clear()

    async def _synchronize(self) -> None:
        """Create and delete leases as the ranges ask for it.

        The ranges are asked for *after* the leases were listed: a range that is gone from
        them is gone for good, and one whose lease is missing was not finished by any host.
        """
        owned = {x.range_id for x in self._owned()}
        leases = await self._container.list()
        owned_throughout = [x for x in self._owned() if x.range_id in owned]
        await delete_echoes(self._container, owned_throughout, leases, events=self._events)
        ranges = self.ranges = await self._feed.ranges()
        listed = with_parts(self._feed, ranges, leases)
        freed = await self._free_waiting(leases, listed)
        try:
            created = await create_missing(
                self._feed,
                self._container,
                self._settings.start_at,
                ranges=ranges,
                leases=leases,
                events=self._events,
                memory=self._memory,
                left_to_others=self._deleted.left_to_their_readers,
                parallelism=self._settings.parallelism,
                begin=self._random.random,
            )
        except (RangeRefused, RangeUnknown):
            self._changed()  # the other leases are there
            raise
        if self._feed.successors_inherit_positions:
            listed = not_read_in_parts(listed, leases)
        deleted = await delete_finished(
            self._container, ranges=listed, leases=leases, events=self._events
        )
        if created or deleted or freed:
            self._changed()

    async def _free_waiting(self, leases: Sequence[Lease], ranges: Sequence[FeedRange]) -> bool:
        """List again only if some lease seems to wait for one that was deleted, and that is
        not created again: one of ``ranges`` is, where they do not follow their readers.
        """
        inherited = self._feed.successors_inherit_positions
        coming = () if inherited else {x.id for x in ranges}
        if not any(waits_for_ever(x, leases, coming) for x in leases):
            return False
        again = await self._container.list()
        return await free_from_deleted_parents(self._container, leases, again, coming)


async def delete_echoes(
    container: LeaseContainer,
    owned: Collection[Lease],
    leases: Collection[Lease],
    *,
    events: HostEvents,
) -> None:
    """Delete the leases that were never owned and whose keys this host reads under others.

    A range begins only when those that hold keys of it have ended, so there is no such
    lease, but for one: a write that was under way for long created a lease again that had
    been deleted. ``owned`` are leases that were this host's before, and still are after,
    ``leases`` were listed: its owner alone knows that a range has not ended since.

    A processor of another kind makes leases earlier, when it goes on behind a range that is
    not marked as ended yet, and what it has begun may end and go on in leases of ours, before
    this host has marked its own. Their positions are known nowhere else.
    """
    keys = KeyBounds(x.range for x in owned)
    for lease in leases:
        if lease.epoch or not keys.share_keys_with(lease.range):
            continue  # at the start, thousands are owned and thousands are not yet
        if any(_echoes(lease, x) and not _goes_on_behind(x, lease, leases) for x in owned):
            await delete_lease(container, lease, events, SUPERSEDED)


def _echoes(lease: Lease, owned: Lease) -> bool:
    waits = owned.range_id in lease.range.parents
    same = owned.range_id == lease.range_id
    by_others = lease.stamp is not None  # ours carry none before their first owner
    return not (waits or same or by_others) and lease.range.shares_keys_with(owned.range)


def _goes_on_behind(owned: Lease, lease: Lease, leases: Collection[Lease]) -> bool:
    """Whether a lease goes on where others have read what an owned range ends in."""
    descendants = read_descendants(owned.range, leases)
    return any(x.range.shares_keys_with(lease.range) for x in descendants)


async def delete_finished(
    container: LeaseContainer,
    *,
    ranges: Collection[FeedRange],
    leases: Sequence[Lease],
    events: HostEvents,
) -> bool:
    """Delete the leases of ended ranges that are not needed any more.

    A tombstone stays as long as a lease would be created again for its range, which is one of
    ``ranges`` then, and until each of its successors has a checkpoint of its own: until
    then, a write that creates it late finds it there.
    ``ranges`` must be younger than ``leases``. Return whether any was deleted.
    """
    listed = {x.id for x in ranges}
    deleted = False
    for lease in leases:
        if lease.ended and lease.range_id not in listed:
            successors = [x for x in leases if _goes_on_in(lease, x)]
            if all([await _has_checkpoint(container, x.range_id) for x in successors]):
                await delete_lease(container, lease, events, "its successors go on")
                deleted = True
    return deleted


def _goes_on_in(ended: Lease, other: Lease) -> bool:
    """Whether a lease keeps a tombstone: it holds keys of it, and may not have been read.

    What was superseded before any host owned it has no descendants: it stays until others are
    reading its keys.
    """
    goes_on = not (ended.epoch or other.ended) and ended.range.shares_keys_with(other.range)
    return goes_on or ended.range_id in other.range.parents


async def _has_checkpoint(container: LeaseContainer, range_id: RangeId) -> bool:
    lease = await look_up(container, range_id)
    return lease is None or lease.ended or lease.checkpoint_epoch > 0
