"""What lies behind a lease: in its range, and in what goes on with its keys.

While no host runs, a range may be split, and what it goes on in has no lease yet. Those
changes count as the lease's: a fleet that is scaled by its lag would never wake for them.
"""

from collections.abc import Collection, Iterable, Sequence

from changefeed.feeds.backlog import Backlog, measure_backlog
from changefeed.feeds.feed import Child, Feed, FeedRange, Position, RangeEnded, RangeId


class Unread:
    """Counts in one look at a fleet; each range that has no lease counts once.

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

    async def beyond(self, children: Iterable[Child]) -> Backlog | None:
        """Return what lies in the children of an ended range that have no lease yet, if any."""
        total: Backlog | None = None
        for child in children:
            if child.range.id not in self._counted:
                self._counted.add(child.range.id)
                more = await self.behind(child.range, child.start)
                total = more if total is None else total.with_more(more)
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
