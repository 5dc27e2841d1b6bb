"""What stands between hosts and a feed that may not answer."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import MAX_WAIT_FOR_NEWS, BoundedFeed, FeedRange, Position, RangeId
from changefeed.feeds.memory import MemoryFeed


async def test_a_feed_that_does_not_answer_is_unavailable() -> None:
    class Silent(MemoryFeed):
        async def ranges(self) -> Sequence[FeedRange]:
            await asyncio.sleep(1e9)
            return ()

    with pytest.raises(FeedUnavailable, match="did not answer ranges within 1 s"):
        await BoundedFeed(Silent(1), timeout=1).ranges()


@pytest.mark.parametrize("answers", [True, False], ids=["waits", "hangs"])
async def test_a_feed_that_waits_for_news_is_given_the_time_for_it(
    answers: bool,  # noqa: FBT001 - whether it does
) -> None:
    class Waiting(MemoryFeed):
        async def news(self, positions: Mapping[FeedRange, Position]) -> Collection[RangeId]:
            await asyncio.sleep(MAX_WAIT_FOR_NEWS if answers else 1e9)
            return [x.id for x in positions]

    bounded = BoundedFeed(Waiting(1), timeout=1)
    asked = bounded.news({FeedRange(id=RangeId("0")): Position("0")})
    if answers:
        assert await asked == ["0"]
        return
    with pytest.raises(FeedUnavailable, match="did not answer news within 11 s"):
        await asked
