"""What a broker counts, and when it is not ready."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.metered_store import MeteredStore
from changefeed.log.brokers.metrics import BrokerMetrics, CoreGauges, ReadLag
from changefeed.log.brokers.run import problems_of
from changefeed.log.brokers.run_core import open_core
from changefeed.log.protocol.messages import AppendRequest
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import StoreUnavailable
from tests.support.brokers import QUICK, batch, in_era, request
from tests.support.watched_store import WatchedStore

P1 = RangeId("e1.p01.v00-ff")


class Metered:
    """A broker whose counters are read without a server."""

    def __init__(
        self, core: BrokerCore, meters: MeterProvider, read: InMemoryMetricReader
    ) -> None:
        self.core = core
        self._meters = BrokerMetrics(meters)
        self._gauges = CoreGauges(meters)
        self._read = read

    async def append(self, asked: AppendRequest) -> None:
        answer = await self.core.append("orders", asked)
        self._meters.appended("orders", asked, answer, 0.004)

    async def read(self, after: int, most: int = 1_000_000) -> None:
        result = await self.core.read("orders", P1, after, max_bytes=most)
        self._meters.read("orders", result, await self.core.behind("orders", P1, after, result))

    def points(self) -> dict[str, list[Any]]:
        self._gauges.show(self.core.status())
        data = self._read.get_metrics_data()
        assert data is not None
        (resource,) = data.resource_metrics
        return {
            x.name: list(x.data.data_points)
            for scope in resource.scope_metrics
            for x in scope.metrics
        }


@asynccontextmanager
async def metered() -> AsyncIterator[Metered]:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    store = MeteredStore(MemoryStore(), meters)
    async with open_core(store, "broker-1", settings=QUICK) as core:
        await core.catalogs.create("orders", parts=1)
        await core.wait_until_writing()
        yield Metered(core, meters, reader)


async def test_producers_that_sent_something_are_counted_once() -> None:
    async with metered() as found:
        assert found.points()["changefeed.broker.producers"][0].value == 0
        await found.append(request(batch(P1, "a")))
        await found.append(request(batch(P1, "b"), producer="q"))
        await found.append(request(batch(P1, "c"), number=2))
        assert found.points()["changefeed.broker.producers"][0].value == 2


async def test_readers_lag_is_the_largest_of_a_collection_until_it_is_old() -> None:
    lag = ReadLag()
    lag.add("orders", 7, now=10.0)
    lag.add("orders", 900, now=20.0)
    lag.add("orders", 3, now=30.0)
    lag.add("others", 0, now=30.0)
    assert lag.worst(59.0) == {"orders": 900, "others": 0}
    assert lag.worst(61.0) == {"orders": 900, "others": 0}
    lag.add("orders", 5, now=70.0)
    assert lag.worst(125.0) == {"orders": 5}
    assert lag.worst(500.0) == {}


async def test_a_read_says_how_far_it_has_left_the_reader_behind() -> None:
    async with metered() as found:
        for n in range(1, 6):
            await found.append(request(batch(P1, "a", "b"), number=n))
        await found.read(10)
        (lag,) = found.points()["changefeed.broker.read.lag"]
        assert (lag.value, dict(lag.attributes)) == (0, {"collection": "orders"})
        await found.read(2, most=1)
        (lag,) = found.points()["changefeed.broker.read.lag"]
        assert lag.value == 6
        await found.core.catalogs.split("orders")
        await in_era(found.core, 2)
        assert await found.core.known_end("orders", P1) == 10


async def test_a_broker_is_not_ready_while_nothing_comes_from_its_store_and_says_why() -> None:
    inner, away = WatchedStore(), False

    async def answer(_: str, __: str) -> None:
        if away:
            raise StoreUnavailable("the store memory: cannot be reached: no route")

    inner.before = answer
    store = MeteredStore(inner, MeterProvider(), asyncio.get_running_loop().time)
    patient = dataclasses.replace(QUICK, expiration=60.0)
    async with open_core(store, "broker-1", settings=patient) as core:
        await core.wait_until_writing()
        assert problems_of(core, store) == []
        away = True
        await asyncio.sleep(1)
        assert problems_of(core, store) == []  # it may be over with the next request
        await asyncio.sleep(4)
        (problem,) = problems_of(core, store)
        assert "the store memory: cannot be reached" in problem
        away = False
        await asyncio.sleep(2)
        assert problems_of(core, store) == []
        away = True
        await asyncio.sleep(1)
        assert problems_of(core, store) == []
        away = False


async def test_a_broker_without_a_place_in_the_era_says_that_it_takes_no_records() -> None:
    store = MeteredStore(MemoryStore(), MeterProvider())
    async with open_core(store, "broker-1", settings=QUICK) as core:
        (problem,) = problems_of(core, store)
        assert "takes no records" in problem
