"""The feed over brokers that do not all know the same catalog."""

import asyncio
from random import Random
from typing import Any, cast

from changefeed.feeds.brokers.feed import BrokersFeed
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.wire import End
from changefeed.feeds.feed import FeedRange
from tests.support.model_cluster import ModelCluster


class LateBrokers:
    """Brokers that look at the store for a catalog only when they are asked for a newer one."""

    collection = "orders"

    def __init__(self) -> None:
        self.cluster = ModelCluster(1, 1, Random(1))
        self._known: Routes | None = None

    async def routes(self, *, at_least: int = 0, since_era: int = 0) -> Routes:
        if self._known is None or self._known.topology.catalog < at_least:
            self._known = await self.cluster.routes(since_era=since_era)
        return self._known

    async def end(self, *_: object) -> End:
        return End(start=0, last=3)


async def test_a_range_that_was_opened_a_moment_ago_is_read_though_brokers_are_late() -> None:
    brokers = LateBrokers()
    feed = BrokersFeed(cast("Any", brokers), await brokers.routes(), wait=0.0)
    (before,) = await feed.ranges()
    brokers.cluster.begin_era(1)
    routes = await brokers.cluster.routes()
    (opened,) = (x for x in routes.by_id if x != before.id)
    assert (await feed.start(FeedRange(id=opened), "now")).endswith("/3")


class CountingBrokers(LateBrokers):
    """Brokers that write down how many ranges they have named."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[int] = []

    async def routes(self, *, at_least: int = 0, since_era: int = 0) -> Routes:
        assert at_least <= self.cluster.catalog
        found = await self.cluster.routes(since_era=since_era)
        self.named.append(len(found.topology.partitions))
        return found


async def test_eras_that_were_over_before_are_not_named_to_a_feed_again() -> None:
    brokers = CountingBrokers()
    feed = BrokersFeed(cast("Any", brokers), await brokers.routes(), wait=0.0)
    brokers.cluster.begin_era(1)
    assert len(await feed.ranges()) == 2
    for era in range(3, 30):
        brokers.cluster.begin_era(1)
        assert [x.id for x in await feed.ranges()] == [x.id for x in brokers.cluster.partitions]
        assert brokers.named[-1] == 2, era  # the one that was open, and the next
    await asyncio.sleep(3600)
    assert len(await feed.ranges()) == 29
    assert brokers.named[-1] == 1
