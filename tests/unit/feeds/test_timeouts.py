"""What stands between hosts and a feed that may not answer."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import (
    LONGEST_WAIT_FOR_NEWS,
    AnswersForMany,
    Continuation,
    Feed,
    FeedRange,
    RangeEnded,
    RangeId,
    RemembersRanges,
)
from changefeed.feeds.memory import MemoryFeed
from changefeed.feeds.timeouts import bounded_feed
from tests.support.shifting_feed import ShiftingReader, ShiftingStore


@pytest.mark.parametrize(
    "feed", [MemoryFeed(1), ShiftingReader(ShiftingStore())], ids=["memory", "shifting"]
)
def test_a_bounded_feed_can_what_the_feed_can(feed: Feed) -> None:
    bounded = bounded_feed(feed, timeout=1)
    for ability in (RemembersRanges, AnswersForMany):
        assert isinstance(bounded, ability) == isinstance(feed, ability)


async def test_a_bounded_feed_passes_on_the_ranges_it_is_to_remember() -> None:
    store = ShiftingStore()
    bounded = bounded_feed(ShiftingReader(store), timeout=1)
    assert isinstance(bounded, RemembersRanges)
    store.split(RangeId("0"))
    store.merge(0)
    bounded.remember_ranges([FeedRange(id=RangeId("1"), low="", high="7F")])
    with pytest.raises(RangeEnded) as ended:
        await bounded.read(RangeId("1"), Continuation('"0"'), 1)
    assert [x.range.id for x in ended.value.successors] == ["-7F"]


async def test_a_feed_that_does_not_answer_is_unavailable() -> None:
    class Silent(MemoryFeed):
        async def ranges(self) -> Sequence[FeedRange]:
            await asyncio.sleep(1e9)
            return ()

    with pytest.raises(FeedUnavailable, match="did not answer ranges within 1 s"):
        await bounded_feed(Silent(1), timeout=1).ranges()


@pytest.mark.parametrize("answers", [True, False], ids=["waits", "hangs"])
async def test_a_feed_that_waits_for_news_is_given_the_time_for_it(
    answers: bool,  # noqa: FBT001 - whether it does
) -> None:
    class Waiting(MemoryFeed):
        async def news(self, positions: Mapping[RangeId, Continuation]) -> Collection[RangeId]:
            await asyncio.sleep(LONGEST_WAIT_FOR_NEWS if answers else 1e9)
            return [*positions]

    bounded = bounded_feed(Waiting(1), timeout=1)
    assert isinstance(bounded, AnswersForMany)
    asked = bounded.news({RangeId("0"): Continuation("0")})
    if answers:
        assert await asked == ["0"]
        return
    with pytest.raises(FeedUnavailable, match="did not answer news within 11 s"):
        await asked
