"""A feed in memory whose ranges can only be read whole, as those of many feeds."""

from changefeed.feeds.feed import Feed, FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed


class PartlessFeed(MemoryFeed):
    split = Feed.split
    merge = Feed.merge
    sub_range = Feed.sub_range


class Handing(PartlessFeed):
    """A feed whose ranges hand on the positions of their readers."""

    children_inherit_positions = True

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        name = RangeId(f"{low}-{high}")
        return FeedRange(id=name, low=low, high=high, of=found.whole, generation=(0, 1))
