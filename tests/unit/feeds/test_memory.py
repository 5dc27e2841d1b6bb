"""What the feed in memory does beyond the contract of feeds: stories steer it by hand."""

import pytest

from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import MAX_TIME_US, FeedRange, RangeEnded, RangeId
from changefeed.feeds.memory import MemoryFeed


def name(text: str) -> RangeId:
    return RangeId(text)


async def test_ranges_are_counted_or_named_and_never_get_a_name_twice() -> None:
    assert [x.id for x in await MemoryFeed(3).ranges()] == ["r0", "r1", "r2"]
    feed = MemoryFeed(["left", "r0"])
    assert [x.id for x in feed.split_range(name("left"))] == ["r1", "r2"]
    with pytest.raises(ValueError, match="one name"):
        MemoryFeed(["a", "a"])


def test_commit_times_come_from_the_clock_unless_given() -> None:
    now = 10.0
    feed = MemoryFeed(clock=lambda: now)
    assert feed.append("a").committed_us == 10_000_000
    now = 11.5
    assert feed.append("a").committed_us == 11_500_000
    assert feed.append("a", committed_us=7).committed_us == 7
    with pytest.raises(ValueError, match="years 1 to 9999"):
        feed.append("a", committed_us=MAX_TIME_US + 1)


def test_a_change_can_be_put_into_the_range_a_story_needs() -> None:
    feed = MemoryFeed(["a", "b"])
    assert [feed.append("k", range_id=name("b")).sequence for _ in range(2)] == [1, 2]
    with pytest.raises(RangeUnknown):
        feed.append("k", range_id=name("c"))


async def test_a_range_closed_for_good_goes_on_in_nothing_and_its_keys_are_refused() -> None:
    feed, r0 = MemoryFeed(), FeedRange(id=name("r0"))
    feed.append("a")
    assert feed.close(name("r0"), 0) == ()
    with pytest.raises(ValueError, match="closed for good"):
        feed.append("a")
    with pytest.raises(ValueError, match="closed for good"):
        feed.begin_era(2)
    with pytest.raises(RangeEnded, match="goes on in nothing"):
        await feed.read(r0, await feed.start(r0, "now"), 1)


def test_a_range_is_split_down_to_one_hash() -> None:
    feed, low = MemoryFeed(), name("r0")
    for _ in range(32):
        low = feed.split_range(low)[0].id
    with pytest.raises(ValueError, match="1 hashes cannot be shared by 2"):
        feed.split_range(low)


def test_what_has_ended_takes_no_changes_and_cannot_end_again() -> None:
    feed = MemoryFeed(3)
    feed.split_range(name("r0"))
    for attempt in (
        lambda: feed.append("k", range_id=name("r0")),
        lambda: feed.split_range(name("r0")),
        lambda: feed.merge_ranges(name("r0"), name("r1")),
    ):
        with pytest.raises(ValueError, match="has ended"):
            attempt()
    with pytest.raises(ValueError, match="not neighbours"):
        feed.merge_ranges(name("r2"), name("r3"))
