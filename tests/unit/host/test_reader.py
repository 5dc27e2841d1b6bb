"""Pages that are fetched before the observer wants them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import Change, FeedRange, Page, Position, RangeEnded, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.load_meter import LoadMeter, SharedTime
from changefeed.host.reader import IdleRanges, Reader
from changefeed.host.settings import FeedSettings
from changefeed.leases.lease import HostName
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.calls import NEVER, Calls

R0 = RangeId("r0")
BEGINNING = Position("0")


@asynccontextmanager
async def reading(
    feed: MemoryFeed, reads: Calls, *, batch_wait: float = 0
) -> AsyncIterator[Reader]:
    """Pages of 10, one ahead."""
    random = Random(1)
    asked = proxied(feed, reads)
    settings = FeedSettings(page_size=10, batch_wait=batch_wait)
    retrier = Retrier(HostEvents(HostName("a")), random)
    clock = asyncio.get_running_loop().time
    pages = Reader(
        asked,
        FeedRange(id=R0),
        settings,
        retrier=retrier,
        idle=IdleRanges(asked, settings, retrier=retrier, random=random),
        at_rest=lambda: False,
        came=lambda: None,
        meter=LoadMeter(make.lease(R0), cooldown=1, shared=SharedTime(clock)),
    )
    filling = asyncio.create_task(pages.fill(BEGINNING))
    yield pages
    filling.cancel()


def changes_in(pages: Reader) -> Sequence[Change]:
    """Return those of the next page, which is there."""
    page = pages.next_nowait()
    assert isinstance(page, Page)
    return page.changes


async def test_one_page_is_fetched_ahead_and_no_more() -> None:
    reads = Calls()
    async with reading(make.memory_feed(1, 100), reads) as pages:
        await asyncio.sleep(60)
        assert reads.count["read"] == 2  # one waits to be taken, and one behind it
        pages.next_nowait()
        await asyncio.sleep(60)
        assert reads.count["read"] == 3


async def test_changes_are_collected_for_a_while_and_no_longer() -> None:
    feed = make.memory_feed(1, 1)
    async with reading(feed, Calls(), batch_wait=5) as pages:
        for _ in range(3):
            await asyncio.sleep(1.2)
            assert pages.next_nowait() is None
            feed.append("another")
        await asyncio.sleep(2)
        assert len(changes_in(pages)) == 4


async def test_a_full_page_is_not_waited_with_and_no_page_is_fuller() -> None:
    feed = make.memory_feed(1, 7)
    async with reading(feed, Calls(), batch_wait=60) as pages:
        await asyncio.sleep(1.5)
        for _ in range(5):
            feed.append("another")
        await asyncio.sleep(1.5)
        assert len(changes_in(pages)) == 10
        await asyncio.sleep(62)
        assert [x.sequence for x in changes_in(pages)] == [11, 12]


@pytest.mark.parametrize("lasting", [0.1, NEVER], ids=["fails", "is silent"])
async def test_what_is_collected_is_handed_over_when_the_feed_stops_answering(
    lasting: float,
) -> None:
    reads = Calls()
    async with reading(make.memory_feed(1, 2), reads, batch_wait=5) as pages:
        await asyncio.sleep(1.5)
        reads.failing["read"] = FeedUnavailable("down")
        reads.lasting["read"] = lasting
        await asyncio.sleep(30)
        assert len(changes_in(pages)) == 2


async def test_what_is_collected_when_the_range_ends_comes_before_its_end() -> None:
    feed = make.memory_feed(1, 2)
    async with reading(feed, Calls(), batch_wait=60) as pages:
        await asyncio.sleep(1.5)
        feed.split_range(R0)
        await asyncio.sleep(3)
        assert len(changes_in(pages)) == 2
        await asyncio.sleep(1)
        assert isinstance(pages.next_nowait(), RangeEnded)
