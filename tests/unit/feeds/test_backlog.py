"""How far behind a position is, in changes and in time, and a lease whose range went on."""

from changefeed.feeds.backlog import Backlog, Backlogs, lag_of, measure_backlog
from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import FeedRange, Page, Position, RangeId
from changefeed.feeds.memory import MemoryFeed

R0 = RangeId("r0")
START = Position("0")


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


def feed_of(changes: int, *, ranges: int = 1) -> MemoryFeed:
    feed = MemoryFeed(ranges)
    append(feed, changes)
    return feed


def append(feed: MemoryFeed, changes: int) -> None:
    for n in range(changes):
        feed.append(f"key-{n}")


async def behind(feed: MemoryFeed, *leases: tuple[str, str]) -> list[int]:
    """Return what lies behind each lease, given as a range and a position."""
    leased = {RangeId(x) for x, _ in leases}
    measured = Backlogs(feed, leased=leased, ranges=await feed.ranges())
    return [
        (await measured.behind(FeedRange(id=RangeId(x)), Position(y))).changes
        for x, y in leases
    ]


async def test_a_range_that_is_open_counts_its_own_changes() -> None:
    assert await behind(feed_of(10), ("r0", "4")) == [6]
    assert await behind(feed_of(10), ("r0", "10")) == [0]


async def test_a_range_that_was_read_to_its_end_counts_what_it_goes_on_in() -> None:
    feed = feed_of(10)
    feed.split_range(RangeId("r0"))
    append(feed, 20)
    assert await behind(feed, ("r0", "10")) == [20]


async def test_what_has_a_lease_of_its_own_counts_there() -> None:
    feed = feed_of(10)
    low, high = feed.split_range(RangeId("r0"))
    append(feed, 20)
    counts = await behind(feed, ("r0", "10"), (low.id, "0"))
    assert sum(counts) == 20
    assert counts[1] == await lag_of(feed, low, START)
    assert counts[0] == await lag_of(feed, high, START)


async def test_what_two_ranges_go_on_in_counts_once() -> None:
    feed = feed_of(0, ranges=2)
    feed.merge_ranges(RangeId("r0"), RangeId("r1"))
    append(feed, 20)
    assert await behind(feed, ("r0", "0"), ("r1", "0")) == [20, 0]
