"""Homes of closed partitions follow from the newest era, and read ahead what they become."""

import asyncio

from changefeed.brokers.core import BrokerCore
from changefeed.brokers.run_core import leave, open_core
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import StoreUnavailable
from tests.support.brokers import QUICK, batch, first_broker, in_era, keys_of, put
from tests.support.watched_store import WatchedStore

OLD = tuple(RangeId(f"e1.p{n:02}.v00-ff") for n in range(1, 13))


def homes(core: BrokerCore) -> list[str]:
    """Return the homes of the first era's ranges, as clients have them."""
    routes = Routes(topology_of(core.index, "orders"), "http")
    return [routes.home(routes.partition(x)) for x in OLD]


async def test_a_broker_that_joins_is_the_home_of_what_was_before_on_its_keys() -> None:
    store = MemoryStore()
    async with first_broker(store) as first:
        await put(first, "orders", *(batch(x, "a") for x in OLD))
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            catalogs = second.catalog.number
            assert homes(second) == ["broker-1"] * 6 + ["broker-2"] * 6
            await asyncio.sleep(10)
            assert second.catalog.number == catalogs  # that was all there was to say
            await leave(second)
        await in_era(first, 3)
        assert homes(first) == ["broker-1"] * 12
        assert first.catalog.number <= catalogs + 3  # one era, and one member less


async def test_a_new_home_reads_ahead_what_it_did_not_write_though_the_store_fails() -> None:
    store, failed = WatchedStore(), set[str]()

    async def fail_once(call: str, key: str) -> None:
        if call == "get" and key.startswith("wal/00000001/broker-1/") and key not in failed:
            failed.add(key)
            raise StoreUnavailable("not now")

    async with first_broker(store) as first:
        await put(first, "orders", *(batch(x, "a") for x in OLD))
        store.before = fail_once
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            await asyncio.sleep(10)
            assert failed
            misses = second.status().cache_misses
            assert misses > 0
            assert await keys_of(second, "orders", OLD[6]) == ["a"]
            assert second.status().cache_misses == misses
            assert first.status().cache_misses == 0  # it wrote all, and is the home of half
