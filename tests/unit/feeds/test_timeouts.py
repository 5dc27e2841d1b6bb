"""What stands between hosts and a feed that may not answer."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import (
    MAX_WAIT_FOR_NEWS,
    FeedRange,
    Position,
    RangeEnded,
    RangeId,
)
from changefeed.feeds.memory import MemoryFeed
from changefeed.feeds.timeouts import bounded_feed
from tests.support.shifting_feed import ShiftingReader, ShiftingStore


async def test_a_bounded_feed_can_what_the_feed_can() -> None:
    store = ShiftingStore()
    bounded = bounded_feed(ShiftingReader(store), timeout=1)
    assert bounded.children_inherit_positions
    (whole,) = await bounded.ranges()
    low, high = bounded.split(whole, 2)
    assert bounded.merge([low, high]).id == whole.id
    assert bounded.sub_range(whole, low.low, low.high) == low
    store.split(whole.id)
    with pytest.raises(RangeEnded) as ended:
        await bounded.read(whole, Position('"0"'), 1)
    assert [x.range.id for x in ended.value.children] == ["1", "2"]


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
        async def news(self, positions: Mapping[FeedRange, Position]) -> Collection[RangeId]:
            await asyncio.sleep(MAX_WAIT_FOR_NEWS if answers else 1e9)
            return [x.id for x in positions]

    bounded = bounded_feed(Waiting(1), timeout=1)
    asked = bounded.news({FeedRange(id=RangeId("0")): Position("0")})
    if answers:
        assert await asked == ["0"]
        return
    with pytest.raises(FeedUnavailable, match="did not answer news within 11 s"):
        await asked
