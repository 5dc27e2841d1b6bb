"""A feed in memory whose ranges can only be read whole, as those of many feeds."""

from changefeed.feeds.memory import MemoryFeed


class PartlessFeed(MemoryFeed):
    cut = None  # type: ignore[assignment]  # so it has none of the methods, for isinstance
    whole_of = None  # type: ignore[assignment]
