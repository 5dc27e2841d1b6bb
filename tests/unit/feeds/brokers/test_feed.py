"""The feed over brokers that do not all know the same catalog."""

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

    async def routes(self, *, at_least: int = 0) -> Routes:
        if self._known is None or self._known.topology.catalog < at_least:
            self._known = await self.cluster.routes()
        return self._known

    async def end(self, *_: object) -> End:
        return End(start=0, last=3)


async def test_a_range_that_was_opened_a_moment_ago_is_read_though_brokers_are_late() -> None:
    brokers = LateBrokers()
    feed = BrokersFeed(cast("Any", brokers), await brokers.routes(), wait=0.0)
    (before,) = await feed.ranges()
    brokers.cluster.begin_era(1)
    routes = await brokers.cluster.routes()
    (opened,) = (x.id for x in routes.ranges if x.id != before.id)
    assert (await feed.start(FeedRange(id=opened), "now")).endswith("/3")
