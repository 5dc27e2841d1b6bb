"""News of many ranges over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic

from changefeed.log.brokers.core import BrokerCore
from changefeed.log.catalog.ranges import Partition
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.feed import BrokersFeed
from changefeed.log.client.producer import BrokersProducer, open_brokers_producer
from changefeed.log.client.sender import ProducerOptions
from changefeed.log.protocol.wire import PartitionNews
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.secret import Secret
from tests.support.broker_cluster import ACCESS, COLLECTION, TOKEN, address_of, broker
from tests.support.processes import PATIENCE

WAITING = BrokerAccess(token=Secret.of(TOKEN), wait=0.05)


@asynccontextmanager
async def given(
    parts: int, access: BrokerAccess = WAITING
) -> AsyncIterator[tuple[BrokerCore, BrokersFeed, BrokersProducer]]:
    async with broker(MemoryStore()) as (core, address):
        await core.catalogs.create(COLLECTION, parts=parts)
        at, options = address_of(address), ProducerOptions()
        async with (
            BrokersFeed.open(at, access) as feed,
            open_brokers_producer(at, ACCESS, options) as producer,
        ):
            yield core, feed, producer


async def test_an_era_that_ends_is_news_of_all_that_it_ends() -> None:
    async with given(2) as (core, feed, _):
        ends = {x: await feed.start(x, "now") for x in await feed.ranges()}
        news = asyncio.create_task(feed.news(ends))
        await asyncio.sleep(0.2)
        assert not news.done()
        await core.catalogs.split(COLLECTION)
        async with asyncio.timeout(8):  # a question is held for 10 s
            assert {*await news} == {x.id for x in ends}


async def test_a_client_that_goes_away_leaves_nothing_behind_at_the_broker() -> None:
    async with given(8) as (_, feed, _producer):
        ends = {x: await feed.start(x, "now") for x in await feed.ranges()}
        before = len(asyncio.all_tasks())
        asking = [asyncio.create_task(feed.news(ends)) for _ in range(20)]
        await asyncio.sleep(0.5)
        assert len(asyncio.all_tasks()) > before + 2 * len(asking)
        for x in asking:
            x.cancel()
        began = monotonic()
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.02)
            assert (
                monotonic() - began < 9
            )  # a question is held for 10 s while its client is there


async def test_what_another_broker_writes_is_answered_as_not_known_here() -> None:
    store = MemoryStore()
    async with broker(store, "broker-1") as (first, one), broker(store, "broker-2") as (_, _):
        await first.catalogs.create(COLLECTION, parts=2)
        async with BrokersFeed.open(address_of(one), ACCESS) as feed:
            open_ = await partitions(feed)
            async with asyncio.timeout(PATIENCE):
                while len({x.broker for x in open_}) < 2:
                    await first.writer.changed.wait()
                    open_ = await partitions(feed)
            after = {x.id: 0 for x in sorted(open_, key=lambda x: x.broker)}
            found = await feed._source.news(after, wait=0)  # broker-1 is asked
            assert found == {
                x.id: PartitionNews(last=None) for x in open_ if x.broker == "broker-2"
            }


async def partitions(feed: BrokersFeed) -> Sequence[Partition]:
    """Return those that are open now."""
    await feed.ranges()
    return feed._routes.partitions.open
