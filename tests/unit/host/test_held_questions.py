"""One question for all ranges that wait, to a feed that takes its time with the answer."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.reader import IdleRanges
from changefeed.host.settings import FeedSettings
from changefeed.leases.lease import HostName
from tests.support.looking import now

A, B = RangeId("a"), RangeId("b")


class HoldingFeed:
    """Holds each question until there is news, or for so many seconds, or gives it up."""

    def __init__(self, held: float) -> None:
        self.held = held
        self.moved: set[RangeId] = set()
        self.asked: list[Collection[RangeId]] = []
        self.waiting = 0
        self._more = asyncio.Event()

    def append(self, range_id: RangeId) -> None:
        self.moved.add(range_id)
        self._more.set()

    async def news(self, positions: Mapping[FeedRange, Position]) -> Collection[RangeId]:
        asked = {x.id for x in positions}
        self.asked.append(asked)
        self.waiting += 1
        try:
            async with asyncio.timeout(self.held):
                while not self.moved & asked:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            return ()
        finally:
            self.waiting -= 1
        return self.moved & asked

    async def lags(self, _: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return {}


@asynccontextmanager
async def waiting_at(feed: HoldingFeed) -> AsyncIterator[IdleRanges]:
    random = Random(1)
    idle = IdleRanges(
        cast("Any", feed),
        FeedSettings(),
        retrier=Retrier(HostEvents(HostName("a")), random),
        random=random,
    )
    running = asyncio.create_task(idle.run())
    yield idle
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def wait_for(idle: IdleRanges, range_id: RangeId) -> asyncio.Task[None]:
    return asyncio.create_task(idle.news(FeedRange(id=range_id), Position("0"), at_rest=True))


async def test_a_feed_that_holds_the_question_is_asked_again_when_more_ranges_wait() -> None:
    feed = HoldingFeed(held=1000)
    async with waiting_at(feed) as idle:
        first = wait_for(idle, A)
        await asyncio.sleep(20)
        second = wait_for(idle, B)
        await asyncio.sleep(5)
        assert feed.asked == [{A}, {A, B}]
        feed.append(B)
        await second
        assert now() == 25
        assert not first.done()
        feed.append(A)
        await first
        assert now() < 27


async def test_a_host_that_stops_leaves_no_question_behind() -> None:
    feed = HoldingFeed(held=1000)
    async with waiting_at(feed) as idle:
        waiting = wait_for(idle, A)
        await asyncio.sleep(5)
        assert feed.waiting == 1
    assert feed.waiting == 0
    waiting.cancel()
