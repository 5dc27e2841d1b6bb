"""Leases for the ranges that a feed has: creating what is missing, deleting what is over."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from math import ceil
from operator import itemgetter
from random import Random

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeRefused, RangeUnknown
from changefeed.feeds.feed import (
    Feed,
    FeedRange,
    KeepsParts,
    RangeId,
    ReadsParts,
    RemembersRanges,
    StartAt,
)
from changefeed.host.balancing.waiting_leases import (
    free_from_deleted_parents,
    waits_for_ever,
)
from changefeed.host.events import HostEvents
from changefeed.host.settings import FeedSettings
from changefeed.host.workers.successors import (
    SUPERSEDED,
    delete_lease,
    with_unfinished_parents,
)
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.lease import Lease
from changefeed.leases.parts import with_parts
from changefeed.leases.plan import KeyBounds
from changefeed.leases.remembering import LeaseMemory
from changefeed.runtime.for_each import for_each

_AT_ONCE = 8
_FIRST_PIECE = 64
_AGAIN_AFTER = 5.0
_SOONEST = 1.0  # a listing that flickers must not keep the feed busy
_LATER = (ContainerUnavailable, FeedUnavailable, RangeRefused, RangeUnknown)


class RangeSynchronizer:
    """Looks for new ranges now and then; calls ``changed`` when leases came or went.

    It runs beside the rounds of balancing, which a slow feed must not hold up.
    ``owned`` returns the leases that this host may act upon, and ``memory`` knows those
    that were there.
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
        random: Random,
    ) -> None:
        self._memory = memory
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
            except _LATER as error:
                wait = min(wait, _AGAIN_AFTER)
                self._events.retrying("ranges", error, wait)
            await asyncio.sleep(min(wait, _SOONEST))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait - _SOONEST):
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
        if isinstance(self._feed, RemembersRanges):
            self._feed.remember_ranges(x.range for x in leases)
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
                parallelism=self._settings.parallelism,
                begin=self._random.random,
            )
        except (RangeRefused, RangeUnknown):
            self._changed()  # the other leases are there
            raise
        deleted = await delete_finished(
            self._container, ranges=listed, leases=leases, events=self._events
        )
        if created or deleted or freed:
            self._changed()

    async def _free_waiting(self, leases: Sequence[Lease], ranges: Sequence[FeedRange]) -> bool:
        """List again only if some lease seems to wait for one that was deleted, and that is
        not created again: one of ``ranges`` is, where they do not follow their readers.
        """
        coming: Collection[RangeId] = ()
        if isinstance(self._feed, KeepsParts):
            coming = {x.id for x in ranges}
        elif not isinstance(self._feed, RemembersRanges):
            return False
        if not any(waits_for_ever(x, leases, coming) for x in leases):
            return False
        again = await self._container.list()
        return await free_from_deleted_parents(self._container, leases, again, coming)


async def create_missing(
    feed: Feed,
    container: LeaseContainer,
    start: StartAt,
    *,
    ranges: Sequence[FeedRange],
    leases: Sequence[Lease],
    events: HostEvents,
    memory: LeaseMemory,
    parallelism: int = 1,
    begin: Callable[[], float] = lambda: 0.0,
) -> bool:
    """Create a lease for each range without one, its start resolved once and for all.

    The first leases of a feed are of parts of its ranges, where it takes these to make
    ``parallelism`` of them. ``begin`` says, from 0 to 1, where to begin among many.

    Return whether any was missing. ``ranges`` come parents before their children. A lease
    that ``memory`` knows was deleted by hand: it goes on from there. Raise
    ``RangeUnknown`` in the end if one has ended since, and is gone from the next list, and
    ``RangeRefused`` if one has no such start.
    """
    missing = _missing(with_parts(feed, ranges, leases), leases)
    if not leases and len(missing) < parallelism and not await container.list():
        missing = in_parts(feed, missing, parallelism)
    elif isinstance(feed, RemembersRanges) and (missing or parts_without_lease(ranges, leases)):
        listed_twice = [*leases, *await container.list()]
        missing = _without_lease_on_keys(missing, listed_twice)
        bounds = parts_without_lease(ranges, listed_twice)
        missing += [feed.part(low, high) for low, high in bounds]
    elif isinstance(feed, KeepsParts) and missing:
        listed_twice = [*leases, *await container.list()]  # one may lack the leases of parts
        missing = _missing(with_parts(feed, ranges, listed_twice), listed_twice)
    fresh = {x.id for x in missing}  # all other parents of theirs have ended
    failed: list[RangeRefused | RangeUnknown] = []

    async def create(found: FeedRange) -> None:
        try:
            position = await feed.resolve_start(found.id, start)
        except (RangeRefused, RangeUnknown) as error:
            failed.append(error)
            return
        fresh_range = with_unfinished_parents(found, fresh)
        wanted = memory.recreated(Lease(range=fresh_range, continuation=position))
        if (await container.create(wanted)).sign_of_life == wanted.sign_of_life:
            events.created(wanted)

    if isinstance(feed, RemembersRanges) or any(fresh.intersection(x.parents) for x in missing):
        await for_each(missing, create, at_once=_AT_ONCE)
    else:
        await _create_beside_others(missing, create, container, begin=begin)
    if failed:
        raise failed[0]
    return bool(missing)


async def _create_beside_others(
    missing: Sequence[FeedRange],
    create: Callable[[FeedRange], Awaitable[None]],
    container: LeaseContainer,
    *,
    begin: Callable[[], float],
) -> None:
    """Create the leases of many ranges, of which other hosts that start create some.

    Each host begins elsewhere, and looks at what is left after ever larger pieces: else each
    of a hundred hosts would create each of ten thousand leases.
    """
    first = int(begin() * len(missing)) if len(missing) > _FIRST_PIECE else 0
    left, size = [*missing[first:], *missing[:first]], _FIRST_PIECE
    while left:
        piece, left = left[:size], left[size:]
        await for_each(piece, create, at_once=_AT_ONCE)
        if left:
            there = {x.range_id for x in await container.list()}
            left = [x for x in left if x.id not in there]
        size *= 2


def in_parts(feed: Feed, ranges: Sequence[FeedRange], parallelism: int) -> list[FeedRange]:
    """Cut ranges into parts, of about as many keys each within one, to have so many.

    All hosts that create first leases together cut alike. Raise ``FeedRefused`` where the
    feed reads no parts, or a range cannot be cut.
    """
    if not isinstance(feed, ReadsParts):
        raise FeedRefused(
            f"feed.parallelism is {parallelism}, and this feed has {len(ranges)} ranges, which "
            f"cannot be read in parts: leave the setting out"
        )
    into = ceil(parallelism / len(ranges)) if ranges else 0
    return [part for found in ranges for part in feed.cut(found, into)]


def _without_lease_on_keys(
    missing: Sequence[FeedRange], leases: Sequence[Lease]
) -> list[FeedRange]:
    """Leave out the ranges of which a lease holds keys, under whatever name.

    A listing may lack some of the leases that were there. Where ranges keep their names, to
    create one of them once more changes nothing; a range that is read in parts would be
    read twice. So each of two listings has to say that no lease holds its keys, nor did,
    except for the range that was split to make it: that one is before it.
    """
    return [x for x in missing if not any(_may_hold_keys(y, x) for y in leases)]


def _may_hold_keys(lease: Lease, found: FeedRange) -> bool:
    held = lease.range
    was_split = lease.ended and held.id in found.parents and held.covers(found)
    return not was_split and held.shares_keys_with(found)


def parts_without_lease(
    ranges: Iterable[FeedRange], leases: Iterable[Lease]
) -> list[tuple[str, str]]:
    """Return the bounds of keys without a lease, in ranges of which others have one.

    A range that was merged is read in parts, and none of them is a range of the feed: one
    whose lease was deleted is seen only by the keys that are missing. So is one that an
    operator has split: its lease has ended, and the feed has it still. What was ended before
    any host read it has never held keys; a lease without bounds may hold any.
    """
    ranges, leases = list(ranges), list(leases)
    ended = {x.range_id for x in leases if x.ended}
    split = {x.id for x in ranges if x.id in ended}
    held = [
        x.range
        for x in leases
        if (x.epoch or not x.ended) and not (x.ended and x.range_id in split)
    ]
    if not all(x.high for x in held):
        return []
    spans = _joined(held)
    return [gap for x in ranges for gap in _gaps(x, spans, of_all=x.id in split)]


def _joined(held: Iterable[FeedRange]) -> list[tuple[str, str]]:
    """Return the keys that are held, in order, with what touches or overlaps as one."""
    spans: list[tuple[str, str]] = []
    for low, high in sorted((x.low, x.high) for x in held):
        if spans and low <= spans[-1][1]:
            begin, end = spans.pop()
            spans.append((begin, max(end, high)))
        else:
            spans.append((low, high))
    return spans


def _gaps(
    found: FeedRange, spans: Sequence[tuple[str, str]], *, of_all: bool
) -> Iterator[tuple[str, str]]:
    """Find the gaps of a range that something holds keys of, or, if said so, nothing.

    Thousands of ranges are looked at one after the other, so each looks at few spans.
    """
    first = bisect_right(spans, found.low, key=itemgetter(1))
    low = found.low
    for held_from, held_to in spans[first : bisect_left(spans, found.high, key=itemgetter(0))]:
        if low < held_from:
            yield low, held_from
        low = held_to
    if (found.low < low or of_all) and low < found.high:
        yield low, found.high


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
    not marked as ended yet. Their positions are known nowhere else.
    """
    keys = KeyBounds(x.range for x in owned)
    for lease in leases:
        if lease.epoch or not keys.share_keys_with(lease.range):
            continue  # at the start, thousands are owned and thousands are not yet
        if any(_echoes(lease, x) for x in owned):
            await delete_lease(container, lease, events, SUPERSEDED)


def _echoes(lease: Lease, owned: Lease) -> bool:
    waits = owned.range_id in lease.range.parents
    same = owned.range_id == lease.range_id
    by_others = lease.stamp is not None  # ours carry none before their first owner
    return not (waits or same or by_others) and lease.range.shares_keys_with(owned.range)


def _missing(ranges: Sequence[FeedRange], leases: Sequence[Lease]) -> list[FeedRange]:
    """Pick the ranges that need a lease from here.

    A range with an ancestor that is still being read gets its lease, and its start, from
    the host that reads its parent to the end; resolved here it would come before its time.
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


async def delete_finished(
    container: LeaseContainer,
    *,
    ranges: Collection[FeedRange],
    leases: Sequence[Lease],
    events: HostEvents,
) -> bool:
    """Delete the leases of ended ranges that are not needed any more.

    A tombstone stays as long as the feed still lists its range (else a lease would be
    created for it again), and until each of its successors has a checkpoint of its own: until
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
    lease = await container.read(range_id)
    return lease is None or lease.ended or lease.checkpoint_epoch > 0
