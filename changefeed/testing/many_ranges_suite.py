"""What feeds that answer for many ranges promise, as tests over the fixture ``given``."""

from typing import Any

from changefeed.feeds.feed import AnswersForMany, Continuation, FeedRange, RangeId
from changefeed.testing.feed_harness import FeedHarness, feed_with, numbered, pages_from


def answering_for_many(given: FeedHarness) -> Any:
    return feed_with(given, AnswersForMany, lacking="it answers for one range at a time")


async def test_a_feed_that_answers_for_many_ranges_says_which_have_news_and_how_much(
    given: FeedHarness,
) -> None:
    feed = answering_for_many(given)
    ranges = await feed.ranges()
    ends = {x: await feed.resolve_start(x, "beginning") for x in ranges}
    assert not await feed.news(ends)
    assert await feed.lags(ends) == {x.id: 0 for x in ranges}
    for begin in (0, 60):
        await given.append(numbered(60, begin))
        lags = {x.id: await feed.lag(x, after) for x, after in ends.items()}
        assert await feed.lags(ends) == lags
        assert set(await feed.news(ends)) == {x for x, lag in lags.items() if lag}
        assert sum(lags.values()) == 60
        ends = {x: (await pages_from(feed, x, after, 1000))[1] for x, after in ends.items()}
        assert not await feed.news(ends)


async def test_a_feed_that_answers_for_many_ranges_leaves_what_is_odd_to_their_readers(
    given: FeedHarness,
) -> None:
    feed = answering_for_many(given)
    first, second, third = await feed.ranges()
    ends = {x: await feed.resolve_start(x, "now") for x in (first, second, third)}
    unknown = FeedRange(id=RangeId("unknown"))
    odd = {**ends, second: Continuation("nowhere"), unknown: ends[third]}
    assert {second.id, unknown.id} <= {*await feed.news(odd)}
    assert {first.id, third.id}.isdisjoint(await feed.news(odd))
    assert (await feed.lags(odd)).keys() == {first.id, third.id}
    await given.split(first.id)  # others may end with it
    assert {first.id, second.id, unknown.id} <= {*await feed.news(odd)}
    assert (await feed.lags(odd)).keys() == {first.id, third.id}
