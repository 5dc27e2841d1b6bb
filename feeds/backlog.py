"""What lies behind a position of a range: how many changes, and how old the first is."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, FeedRange, Page, Position, RangeEnded, RangeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """``changes`` in the feed's measure, or 1 for some where it cannot count.

    ``oldest_us`` is when the first of them was
    committed, in microseconds since 1970; ``None`` where there is none, or it is not known.
    """

    changes: int
    oldest_us: int | None = None

    def seconds(self, now: float) -> float | None:
        """Return how late a reader is at ``now`` (seconds since 1970), by the clock that
        stamped the change; ``None`` if it is not known.
        """
        if not self.changes:
            return 0.0
        if self.oldest_us is None:
            return None
        return max(0.0, now - self.oldest_us / 1_000_000)

    def with_more(self, other: "Backlog") -> "Backlog":
        """Add what lies behind another position; the older change counts."""
        known = [x.oldest_us for x in (self, other) if x.oldest_us is not None]
        return Backlog(changes=self.changes + other.changes, oldest_us=min(known, default=None))


async def lag_of(feed: Feed, found: FeedRange, after: Position) -> int | None:
    """Return what ``Feed.lags`` says of one range; ``None`` where it does not say it."""
    return (await feed.lags({found: after})).get(found.id)


async def changes_between(
    feed: Feed, found: FeedRange, first: Position, second: Position
) -> int | None:
    """Return how many changes lie between two positions of a range, below 0 where the second
    comes first; ``None`` where the feed cannot say.
    """
    try:
        # What comes in between the two calls makes the difference smaller, never larger.
        before = await lag_of(feed, found, first)
        behind = await lag_of(feed, found, second)
    except FeedError:
        return None
    return None if before is None or behind is None else before - behind


async def measure_backlog(feed: Feed, found: FeedRange, after: Position) -> Backlog:
    """Count, and look at the first change if there is any. Raise what feeds raise.

    That a change which was counted cannot be read is not raised: the host that reads the range
    reports it. What a feed cannot count is one change, where there is any.
    """
    changes = await lag_of(feed, found, after)
    if changes is not None:
        return await with_oldest(feed, found, after, changes=changes)
    try:
        page = await feed.read(found, after, 1)
    except RangeEnded:
        return Backlog(changes=0)
    return _beginning_with(page, changes=min(1, len(page.changes)))


async def with_oldest(
    feed: Feed, found: FeedRange, after: Position, *, changes: int
) -> Backlog:
    """Look at the first change where some were counted."""
    if not changes:
        return Backlog(changes=0)
    with suppress(FeedError, RangeEnded):
        return _beginning_with(await feed.read(found, after, 1), changes=changes)
    return Backlog(changes=changes)


def _beginning_with(page: Page, *, changes: int) -> Backlog:
    oldest = page.changes[0].committed_us if page.changes else None
    return Backlog(changes=changes, oldest_us=oldest)


class Backlogs:
    """What lies behind leases: in their ranges, and in what goes on with their keys.

    While no host runs, a range may be split, and what it goes on in has no lease yet. Those
    changes count as the lease's: a fleet that is scaled by its lag would never wake for them.
    In one look at a fleet each range that has no lease counts once.

    ``leased`` are the ranges that have a lease, ``ranges`` all that the feed has.
    """

    def __init__(
        self, feed: Feed, *, leased: Collection[RangeId], ranges: Sequence[FeedRange]
    ) -> None:
        self._feed = feed
        self._ranges = ranges
        self._counted = set(leased)

    async def behind(self, found: FeedRange, after: Position) -> Backlog:
        """Return what lies behind a position. Raise what feeds raise."""
        total = own = await measure_backlog(self._feed, found, after)
        for child, start in await self._children(found, after, own.changes):
            if child.id not in self._counted:
                self._counted.add(child.id)
                total = total.with_more(await self.behind(child, start))
        return total

    async def _children(
        self, found: FeedRange, after: Position, lag: int
    ) -> list[tuple[FeedRange, Position]]:
        if not lag:  # it may have ended here, and says where it goes on
            try:
                await self._feed.read(found, after, 1)
            except RangeEnded as ended:
                return [(x.range, x.start) for x in ended.children]
            return []
        children = [x for x in self._ranges if _goes_on_in(found, x)]
        return [(x, await self._feed.start(x, "beginning")) for x in children]


def _goes_on_in(found: FeedRange, child: FeedRange) -> bool:
    known = found.high and child.high
    return found.whole in child.parents and (not known or child.shares_keys_with(found))
