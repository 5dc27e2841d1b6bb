"""What lies behind a lease, when its range has gone on without any host."""

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.unread import Unread

START = Position("0")


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
    unread = Unread(feed, leased=leased, ranges=await feed.ranges())
    return [
        (await unread.behind(FeedRange(id=RangeId(x)), Position(y))).changes for x, y in leases
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
