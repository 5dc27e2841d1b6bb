"""Which ranges of a feed have no lease and need one from here, and creating these."""

from bisect import bisect_left, bisect_right
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import pairwise
from math import ceil
from operator import itemgetter

from changefeed.feeds.errors import FeedRefused, RangeRefused, RangeUnknown
from changefeed.feeds.feed import (
    Feed,
    FeedRange,
    RangeId,
    StartAt,
)
from changefeed.host.events import HostEvents
from changefeed.host.workers.successors import with_unfinished_parents
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.leases.operations.look_up import look_up
from changefeed.leases.parts import with_parts
from changefeed.leases.remembering import LeaseMemory
from changefeed.runtime.for_each import for_each

_AT_ONCE = 8
_FIRST_PIECE = 64


async def create_missing(
    feed: Feed,
    container: LeaseContainer,
    start: StartAt,
    *,
    ranges: Sequence[FeedRange],
    leases: Sequence[Lease],
    events: HostEvents,
    memory: LeaseMemory,
    left_to_others: Callable[[Collection[RangeId]], Collection[RangeId]] = lambda _: (),
    parallelism: int = 1,
    begin: Callable[[], float] = lambda: 0.0,
) -> bool:
    """Create a lease for each range without one, its start resolved once and for all.

    The first leases of a feed are of parts of its ranges, where it takes these to make
    ``parallelism`` of them; hosts that start together create the same ones. ``begin`` says,
    from 0 to 1, where to begin among many.

    Return whether any was created. ``ranges`` come parents before their children. A lease
    that ``memory`` knows was deleted by hand: it goes on from there, unless it is
    ``left_to_others`` to create; of one that holds keys of a missing range and is not listed,
    it is looked up whether it was deleted. Raise
    ``RangeUnknown`` in the end if one has ended since, and is gone from the next list, and
    ``RangeRefused`` if one has no such start.
    """
    missing, listed = await _missing_twice(feed, container, ranges, leases, parallelism)
    if missing:
        missing = await _without_unlisted_lease(missing, listed, container, memory)
    fresh = {x.id for x in missing}  # all other parents of theirs have ended
    others = left_to_others(fresh)
    missing = [x for x in missing if x.id not in others]
    failed: list[RangeRefused | RangeUnknown] = []

    async def create(found: FeedRange) -> None:
        try:
            position = await feed.start(found, start)
        except (RangeRefused, RangeUnknown) as error:
            failed.append(error)
            return
        fresh_range = with_unfinished_parents(found, fresh)
        wanted = memory.recreated(Lease(range=fresh_range, continuation=position))
        assert wanted.continuation is not None, f"{found.id!r} would begin nowhere"
        if (await container.create(wanted)).sign_of_life == wanted.sign_of_life:
            events.created(wanted)

    if feed.successors_inherit_positions or any(fresh.intersection(x.parents) for x in missing):
        await for_each(missing, create, at_once=_AT_ONCE)
    else:
        await _create_beside_others(missing, create, container, begin=begin)
    if failed:
        raise failed[0]
    return bool(missing)


async def _missing_twice(
    feed: Feed,
    container: LeaseContainer,
    ranges: Sequence[FeedRange],
    leases: Sequence[Lease],
    parallelism: int,
) -> tuple[list[FeedRange], Sequence[Lease]]:
    """Return what needs a lease from here, and the listings that say so: two, where one that
    lacks some leases would have keys read twice.
    """
    if _first_parts(feed, ranges, leases, parallelism):
        leases = [*leases, *await container.list()]
        if first := _first_parts(feed, ranges, leases, parallelism):
            return first, leases
    missing = _missing(with_parts(feed, ranges, leases), leases)
    inherited = feed.successors_inherit_positions
    if inherited and (missing or parts_without_lease(ranges, leases)):
        listed = [*leases, *await container.list()]
        missing = _without_lease_on_keys(missing, listed)
        gaps = parts_without_lease(ranges, listed)
        return [*missing, *(feed.sub_range(*gap) for gap in gaps)], listed
    if missing:
        listed = [*leases, *await container.list()]
        return _missing(with_parts(feed, ranges, listed), listed), listed
    return missing, leases


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


def _first_parts(
    feed: Feed, ranges: Sequence[FeedRange], leases: Sequence[Lease], parallelism: int
) -> list[FeedRange]:
    """Return what is missing of the first leases, as long as there are no others.

    Another host may be creating them just now, or have died over it: a range of which some
    parts have a lease is not to be created whole, nor what is left of it as one part. What
    another range goes on in is left to the reader of that, once there are leases.
    """
    if len(ranges) >= parallelism or any(x.ended for x in leases):
        return []
    try:
        cut = in_parts(feed, ranges, parallelism)
    except FeedRefused:
        if leases:
            return []  # the setting counts for the first leases alone
        raise
    known = {x.range_id for x in leases}
    if known.difference(part.id for parts in cut.values() for part in parts):
        return []
    first = [x.id for x in ranges if not leases or cut.keys().isdisjoint(x.parents)]
    return [part for x in first for part in cut[x] if part.id not in known]


def in_parts(
    feed: Feed, ranges: Sequence[FeedRange], parallelism: int
) -> Mapping[RangeId, Sequence[FeedRange]]:
    """Cut ranges into parts, of about as many keys each within one, to have so many.

    All hosts that create first leases together cut alike. Raise ``FeedRefused`` where a range
    cannot be cut.
    """
    into = ceil(parallelism / len(ranges)) if ranges else 0
    assert into * len(ranges) >= parallelism or not ranges, f"{into} parts each are too few"
    try:
        return {x.id: feed.cut(x, into) for x in ranges}
    except FeedRefused as error:
        raise FeedRefused(
            f"feed.parallelism is {parallelism}, and this feed has {len(ranges)} ranges: "
            f"{error}. Leave the setting out"
        ) from error


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


async def _without_unlisted_lease(
    missing: Sequence[FeedRange],
    listed: Iterable[Lease],
    container: LeaseContainer,
    memory: LeaseMemory,
) -> list[FeedRange]:
    """Leave out what a lease holds that no listing shows, but this host has seen before."""
    shown = {x.range_id for x in listed if not x.ended}.union(x.id for x in missing)
    unlisted: list[Lease] = []

    async def look_for(range_id: RangeId) -> None:
        stored = await look_up(container, range_id)
        if stored is None:
            memory.forget(range_id)
        else:
            unlisted.append(stored)

    await for_each(memory.open.difference(shown), look_for, at_once=_AT_ONCE)
    return _without_lease_on_keys(missing, unlisted)


def _may_hold_keys(lease: Lease, found: FeedRange) -> bool:
    held = lease.range
    was_split = lease.ended and held.id in found.parents and held.covers(found)
    return not was_split and held.shares_keys_with(found)


def parts_without_lease(
    ranges: Iterable[FeedRange], leases: Iterable[Lease]
) -> list[tuple[FeedRange, str, str]]:
    """Return keys without a lease, by range and bounds, in ranges of which others have one.

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
    return [(x, *gap) for x in ranges for gap in _gaps(x, spans, of_all=x.id in split)]


def not_read_in_parts(
    ranges: Iterable[FeedRange], leases: Iterable[Lease]
) -> Sequence[FeedRange]:
    """Leave out the ranges whose keys are all read under other names: no lease is missing."""
    open_ = [x for x in leases if not x.ended]
    named = {x.range_id for x in open_}
    spans = _joined(x.range for x in open_ if x.epoch and x.range.high)

    def is_read(found: FeedRange) -> bool:
        return any(low <= found.low < found.high <= high for low, high in spans)

    return [x for x in ranges if x.id in named or not is_read(x)]


def _joined(held: Iterable[FeedRange]) -> list[tuple[str, str]]:
    """Return the keys that are held, in order, with what touches or overlaps as one."""
    spans: list[tuple[str, str]] = []
    for low, high in sorted((x.low, x.high) for x in held):
        if spans and low <= spans[-1][1]:
            begin, end = spans.pop()
            spans.append((begin, max(end, high)))
        else:
            spans.append((low, high))
    assert all(x[1] < y[0] for x, y in pairwise(spans)), f"{spans} are not apart"
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
