"""How far behind a position is, in changes and in time."""

from changefeed.feeds.backlog import Backlog, measure_backlog
from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import FeedRange, Page, Position, RangeId
from changefeed.feeds.memory import MemoryFeed

R0 = RangeId("r0")


async def test_the_age_is_that_of_the_first_change_that_was_not_read() -> None:
    now = 1000.0
    feed = MemoryFeed(1, clock=lambda: now)
    for at in (1000.0, 1010.0, 1020.0):
        now = at
        feed.append("key")
    behind = await measure_backlog(feed, FeedRange(id=R0), Position("1"))
    assert (behind.changes, behind.seconds(1025.0)) == (2, 15.0)
    assert behind.seconds(1000.0) == 0.0, "its clock is ahead of ours"


async def test_at_the_end_nothing_is_late() -> None:
    feed = MemoryFeed(1)
    feed.append("key")
    behind = await measure_backlog(feed, FeedRange(id=R0), Position("1"))
    assert (behind.changes, behind.seconds(1e12)) == (0, 0.0)


async def test_changes_that_cannot_be_read_are_counted_all_the_same() -> None:
    class Unreadable(MemoryFeed):
        async def read(self, *_: object) -> Page:
            raise FeedUnavailable("the disk is away")

    feed = Unreadable(1)
    feed.append("key")
    behind = await measure_backlog(feed, FeedRange(id=R0), Position("0"))
    assert (behind.changes, behind.seconds(1e12)) == (1, None)


def test_of_two_backlogs_the_older_change_counts() -> None:
    old, young = Backlog(changes=1, oldest_us=5), Backlog(changes=2, oldest_us=9)
    assert old.with_more(young) == young.with_more(old) == Backlog(changes=3, oldest_us=5)
    assert old.with_more(Backlog(changes=0)) == old
