"""What lies behind a lease: in its range, and in what goes on with its keys.

While no host runs, a range may be split, and what it goes on in has no lease yet. Those
changes count as the lease's: a fleet that is scaled by its lag would never wake for them.
"""

from collections.abc import Collection, Sequence

from changefeed.feeds.backlog import Backlog, measure_backlog
from changefeed.feeds.feed import Continuation, Feed, FeedRange, RangeEnded, RangeId


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

    async def behind(self, range_id: RangeId, after: Continuation) -> Backlog:
        """Return what lies behind a position. Raise what feeds raise."""
        total = own = await measure_backlog(self._feed, range_id, after)
        for name, start in await self._successors(range_id, after, own.changes):
            if name not in self._counted:
                self._counted.add(name)
                total = total.with_more(await self.behind(name, start))
        return total

    async def _successors(
        self, range_id: RangeId, after: Continuation, lag: int
    ) -> list[tuple[RangeId, Continuation]]:
        if not lag:  # it may have ended here, and says where it goes on
            try:
                await self._feed.read(range_id, after, 1)
            except RangeEnded as ended:
                return [(x.range.id, x.start) for x in ended.successors]
            return []
        children = [x.id for x in self._ranges if range_id in x.parents]
        return [(x, await self._feed.resolve_start(x, "beginning")) for x in children]
