"""What feeds that answer for many ranges promise, as tests over the fixture ``given``."""

import pytest

from changefeed.feeds.feed import BoundedFeed, Feed, FeedRange, Position, RangeId
from changefeed.testing.feed_harness import FeedHarness, busiest, numbered, pages_from


async def knowing_of_news(given: FeedHarness) -> Feed:
    """Return the feed as hosts have it; skip the test if only reading shows whether there is
    something: it then names a range without.
    """
    feed = BoundedFeed(given.feed, timeout=60.0)
    ends = {x: await feed.start(x, "beginning") for x in await feed.ranges()}
    if await feed.news(ends):
        pytest.skip("not this feed: it names ranges that may have news")
    return feed


async def test_a_range_with_something_is_named_before_it_was_asked_about_often(
    given: FeedHarness,
) -> None:
    feed = BoundedFeed(given.feed, timeout=60.0)
    ends = {x: await feed.start(x, "beginning") for x in await feed.ranges()}
    await given.append(numbered(60))
    found, _ = await busiest(feed), await feed.news(ends)
    assert any([found.id in await feed.news(ends) for _ in range(5)])


async def test_a_feed_that_answers_for_many_ranges_says_which_have_news_and_how_much(
    given: FeedHarness,
) -> None:
    feed = await knowing_of_news(given)
    ranges = await feed.ranges()
    ends = {x: await feed.start(x, "beginning") for x in ranges}
    assert not await feed.news(ends)
    assert await feed.lags(ends) == {x.id: 0 for x in ranges}
    for begin in (0, 60):
        await given.append(numbered(60, begin))
        read = {x: await pages_from(feed, x, after, 1000) for x, after in ends.items()}
        lags = {x.id: len(changes) for x, (changes, _) in read.items()}
        assert await feed.lags(ends) == lags
        assert set(await feed.news(ends)) == {x for x, lag in lags.items() if lag}
        assert sum(lags.values()) == 60
        ends = {x: end for x, (_, end) in read.items()}
        assert not await feed.news(ends)


async def test_a_feed_that_answers_for_many_ranges_leaves_what_is_odd_to_their_readers(
    given: FeedHarness,
) -> None:
    feed = await knowing_of_news(given)
    first, second, third = await feed.ranges()
    ends = {x: await feed.start(x, "now") for x in (first, second, third)}
    unknown = FeedRange(id=RangeId("unknown"))
    odd = {**ends, second: Position("nowhere"), unknown: ends[third]}
    assert {second.id, unknown.id} <= {*await feed.news(odd)}
    assert {first.id, third.id}.isdisjoint(await feed.news(odd))
    assert (await feed.lags(odd)).keys() == {first.id, third.id}
    await given.split(first.id)  # others may end with it
    assert {first.id, second.id, unknown.id} <= {*await feed.news(odd)}
    assert (await feed.lags(odd)).keys() == {first.id, third.id}
