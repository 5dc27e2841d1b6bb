"""What lies behind a position of a range: how many changes, and how old the first is."""

from contextlib import suppress
from dataclasses import dataclass

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Continuation, Feed, FeedRange, RangeEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """``changes`` in the feed's measure. ``oldest_us`` is when the first of them was
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


async def measure_backlog(feed: Feed, found: FeedRange, after: Continuation) -> Backlog:
    """Count, and look at the first change if there is any. Raise what ``Feed.lag`` raises.

    That the change cannot be read is not raised: the host that reads the range reports it.
    """
    changes = await feed.lag(found, after)
    return await with_oldest(feed, found, after, changes=changes)


async def with_oldest(
    feed: Feed, found: FeedRange, after: Continuation, *, changes: int
) -> Backlog:
    """Look at the first change where some were counted."""
    if not changes:
        return Backlog(changes=0)
    with suppress(FeedError, RangeEnded):
        page = await feed.read(found, after, 1)
        if page.changes:
            return Backlog(changes=changes, oldest_us=page.changes[0].committed_us)
    return Backlog(changes=changes)
