"""Homes of closed partitions follow from the newest era, and read ahead what they become."""

import asyncio
from typing import Any

from changefeed.brokers.core import BrokerCore
from changefeed.brokers.homes import HomeWarmer
from changefeed.brokers.run_core import leave, open_core
from changefeed.feeds.brokers.catalog_store import CatalogStore, open_cluster
from changefeed.feeds.brokers.partition_reader import PartitionReader
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.row_readers import row_readers
from changefeed.feeds.brokers.segment_reader import SegmentReader
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.brokers.transitions import with_kept_from
from changefeed.feeds.brokers.work import in_thread
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import StoreUnavailable
from tests.support.brokers import QUICK, batch, first_broker, in_era, keys_of, put
from tests.support.watched_store import WatchedStore

OLD = tuple(RangeId(f"e1.p{n:02}.v00-ff") for n in range(1, 13))


def homes(core: BrokerCore) -> list[str]:
    """Return the homes of the first era's ranges, as clients have them."""
    routes = Routes(topology_of(core.catalog, "orders"), "http")
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


async def test_what_retention_takes_meanwhile_begins_no_reading_ahead_anew() -> None:
    store, read = MemoryStore(), list[RangeId]()
    async with first_broker(store) as first:
        await put(first, "orders", *(batch(x, "a") for x in OLD))
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
    catalogs = CatalogStore(store, await open_cluster(store))
    identity = (await catalogs.refresh()).identity
    readers = row_readers(store, identity, QUICK.cache_bytes)

    class Partitions(PartitionReader):
        async def read(self, *what: Any) -> list[Block]:
            read.append(what[2].id)
            kept_from = {(2, "broker-1"): len(read) + 1}
            await catalogs.change(lambda x: with_kept_from(x, kept_from))
            return await super().read(*what)

    partitions = Partitions(SegmentReader(store, readers.cache, in_thread))
    warmer = HomeWarmer("broker-2", catalogs, readers, partitions, QUICK)
    for _ in range(2):
        await warmer.step()
    assert read == [*reversed(OLD[6:])]
