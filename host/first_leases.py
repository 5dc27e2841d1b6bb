"""Where a fleet begins: the first leases, settled once for all its hosts."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import ceil

from changefeed.feeds.errors import FeedRefused, RangeRefused
from changefeed.feeds.feed import Child, Feed, FeedRange, RangeEnded, RangeId, StartAt
from changefeed.leases.lease import RangeEnd
from changefeed.runtime.gather import for_each

_AT_ONCE = 8


async def first_leases(feed: Feed, start: StartAt, parallelism: int) -> RangeEnd:
    """Return the root: what a fleet reads first, each range with its start resolved.

    From the beginning that is the oldest ranges. From a time, or from now, what is over by then
    is left out: what it goes on in is there. A range of which the feed refuses a start is left
    out, too: it is created later, if it can be, as one that has no lease. Ranges are cut where
    it takes sub-ranges to make ``parallelism`` of them. Raise ``FeedRefused`` where they
    cannot be.
    """
    ranges = await feed.ranges()
    starts = {x.range.id: x for x in await _starts(feed, ranges, start) if x is not None}
    if start == "beginning":
        left_out = frozenset[RangeId]()
    else:
        left_out = await _over(feed, ranges, starts)
    kept = {x.id for x in ranges} - left_out
    oldest = [x for x in ranges if x.id in kept and kept.isdisjoint(x.parents)]
    first = [starts[x.id] for x in oldest if x.id in starts]
    return RangeEnd(children=tuple(_in_parts(feed, first, parallelism)))


def _in_parts(feed: Feed, first: Sequence[Child], parallelism: int) -> Sequence[Child]:
    """Cut ranges into as many sub-ranges each as it takes to have so many leases of them.

    Raise ``FeedRefused`` where the feed does not cut its ranges.
    """
    into = ceil(parallelism / len(first)) if first else 1
    assert into * len(first) >= parallelism or not first, f"{into} parts each are too few"
    if into == 1:
        return first
    try:
        return [replace(x, range=y) for x in first for y in feed.split(x.range, into)]
    except FeedRefused as error:
        raise FeedRefused(
            f"feed.parallelism is {parallelism}, and this feed has {len(first)} ranges, "
            f"which cannot be read in parts: leave the setting out ({error})"
        ) from error


async def _starts(
    feed: Feed, ranges: Sequence[FeedRange], start: StartAt
) -> Sequence[Child | None]:
    async def resolved(found: FeedRange) -> Child | None:
        try:
            return Child(range=found, start=await feed.start(found, start))
        except RangeRefused:
            return None

    return await for_each(ranges, resolved, at_once=_AT_ONCE)


async def _over(
    feed: Feed, ranges: Sequence[FeedRange], starts: dict[RangeId, Child]
) -> frozenset[RangeId]:
    """Return the ranges that need no reader: they and their relatives ended by the start."""
    parents = {y for x in ranges for y in x.parents}

    async def has_ended(found: FeedRange) -> bool:
        try:
            await feed.read(found, starts[found.id].start, 1)
        except RangeEnded:
            return True
        return False

    asked = [x for x in ranges if x.id in parents and x.id in starts]
    answers = await for_each(asked, has_ended, at_once=_AT_ONCE)
    over = {x.id for x, ended in zip(asked, answers, strict=True) if ended}
    listed = {x.id for x in ranges}
    while waiting := _waiting_for_others(ranges, listed, over):
        over -= waiting
    return frozenset(over)


def _waiting_for_others(
    ranges: Iterable[FeedRange], listed: Collection[RangeId], over: set[RangeId]
) -> set[RangeId]:
    """Return the children of ranges that are read, and the other parents of such children."""
    families = [(x.id, {*x.parents}.intersection(listed)) for x in ranges]
    return {y for x, of in families if not of <= over for y in {x, *of} & over}
