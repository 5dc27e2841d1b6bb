"""A feed in memory whose ranges can only be read whole, as those of many feeds."""

from changefeed.feeds.feed import Feed
from changefeed.feeds.memory import MemoryFeed


class PartlessFeed(MemoryFeed):
    split = Feed.split
    merge = Feed.merge
    sub_range = Feed.sub_range
