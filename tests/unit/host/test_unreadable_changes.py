"""A change that the feed cannot read concerns itself alone."""

import asyncio
from dataclasses import replace

import msgspec

from changefeed.feeds.feed import FeedRange, Page, Position
from changefeed.feeds.memory import MemoryFeed
from tests.support import make

ODD = 7  # the sequence of the change that cannot be read


class FeedWithAnOddChange(MemoryFeed):
    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        page = await super().read(found, after, limit)
        changes = [
            msgspec.structs.replace(x, unreadable="no id") if x.sequence == ODD else x
            for x in page.changes
        ]
        return replace(page, changes=changes)


def odd_feed() -> FeedWithAnOddChange:
    feed = FeedWithAnOddChange(1)
    for n in range(20):
        feed.append(f"key-{n % 5}")
    return feed


async def test_with_dead_letters_all_others_are_delivered() -> None:
    sections = {"observer": {"on_failure": "dead-letter"}}
    async with make.fleet(sections, feed=odd_feed()) as fleet:
        fleet.start("anna")
        await asyncio.sleep(60)
        assert [x for _, _, x in fleet.log.delivered] == [x for x in range(1, 21) if x != ODD]
        assert [x.change.sequence for x in await fleet.dead_letters()] == [ODD]


async def test_without_them_its_range_is_paused_with_a_reason_and_the_host_goes_on() -> None:
    async with make.fleet(feed=odd_feed()) as fleet:
        fleet.start("anna")
        await asyncio.sleep(60)
        assert [x for _, _, x in fleet.log.delivered] == [*range(1, ODD)]
        (lease,) = await fleet.container.list()
        assert lease.paused is not None
        assert f"sequence {ODD}" in lease.paused
        assert not fleet.running["anna"].done()
