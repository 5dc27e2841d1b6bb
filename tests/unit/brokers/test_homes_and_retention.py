"""Homes of closed partitions, and what is deleted."""

import asyncio
import dataclasses

import pytest
from msgspec.structs import replace

from changefeed.brokers.core import BrokerCore
from changefeed.brokers.homes import with_homes_planned
from changefeed.brokers.operations import create_collection, retain
from changefeed.brokers.retention import Gone, is_as_it_was, with_cuts
from changefeed.brokers.run_core import leave, open_core
from changefeed.feeds.brokers.catalog_index import CatalogIndex
from changefeed.feeds.brokers.catalog_store import CatalogStore, open_cluster
from changefeed.feeds.brokers.errors import PositionGone
from changefeed.feeds.brokers.names import CATALOGS
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from changefeed.feeds.brokers.stores.store import StoreUnavailable
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.feed import RangeId
from tests.support.brokers import QUICK, batch, first_broker, in_era, keys_of, put, virtual_us
from tests.support.watched_store import WatchedStore

OLD = [f"e1.p{n:02}.v00-ff" for n in range(1, 13)]
P1, P2, *_ = OLD


def homes(core: BrokerCore) -> dict[str, str]:
    found = topology_of(core.index, "orders").partitions
    return {x.range.id: x.home for x in found if x.last is not None}


async def test_a_broker_that_joins_becomes_the_home_of_what_was_before_on_its_keys() -> None:
    store = MemoryStore()
    async with first_broker(store) as first:
        await put(first, "orders", *(batch(x, "a") for x in OLD))
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(first, 2)
            await in_era(second, 2)
            await asyncio.sleep(5)
            assert [homes(first)[x] for x in OLD] == ["broker-1"] * 6 + ["broker-2"] * 6
            misses = second.status().cache_misses
            assert misses == 1  # one object holds all: it was read before they moved
            assert await keys_of(second, "orders", OLD[6]) == ["a"]
            assert second.status().cache_misses == misses
            await leave(second)
        await asyncio.sleep(10)
        assert {homes(first)[x] for x in OLD} == {"broker-1"}


async def test_homes_move_though_the_store_fails_now_and_then() -> None:
    store, tried = WatchedStore(), set[str]()

    async def fail_once(call: str, key: str) -> None:
        if call == "create" and key.startswith(CATALOGS) and key not in tried:
            tried.add(key)
            raise StoreUnavailable("not now")

    async with first_broker(store) as first:
        await put(first, "orders", *(batch(x, "a") for x in OLD))
        store.before = fail_once
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(first, 2)
            await in_era(second, 2)
            await asyncio.sleep(10)
            assert [homes(first)[x] for x in OLD] == ["broker-1"] * 6 + ["broker-2"] * 6


async def test_a_few_homes_move_at_a_time() -> None:
    store = MemoryStore()
    async with first_broker(store) as first:
        await put(first, "orders", *(batch(x, "a") for x in OLD))
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(first, 2)
            await in_era(second, 2)
            catalog = first.catalog
            still = replace(
                catalog,
                collections=tuple(
                    replace(
                        c,
                        partitions=tuple(
                            replace(p, home="broker-1", moving_to="") if p.era == 1 else p
                            for p in c.partitions
                        ),
                    )
                    for c in catalog.collections
                ),
            )
            planned = with_homes_planned(CatalogIndex(still), 4)
            moving = [x.moving_to for x in planned.collections[0].partitions if x.moving_to]
            assert moving == ["broker-2"] * 4
            assert with_homes_planned(CatalogIndex(planned), 4) is planned


async def fill(core: BrokerCore, partition: str, count: int) -> None:
    """Write one record after another, each in an object of its own, a second apart."""
    for n in range(1, count + 1):
        await put(core, "orders", batch(partition, f"k{n}", sequence=n))
        await asyncio.sleep(1)


KEEPING = dataclasses.replace(QUICK, retention_interval=5.0, delete_grace=10.0)


async def test_what_is_older_than_a_collection_keeps_is_deleted_and_readers_learn_it() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=1, settings=KEEPING) as core:
        await fill(core, P1, 200)
        await retain(core.catalogs, "orders", seconds=40, bytes_=None)
        await asyncio.sleep(30)
        info = topology_of(core.index, "orders").partitions[0]
        assert info.start == 128  # objects with tables are 1, 65, 129, 193
        with pytest.raises(PositionGone, match="records 1 to 128 of range"):
            await core.read("orders", RangeId(P1), 0)
        assert (await keys_of(core, "orders", P1, 128))[0] == "k129"
        rows = [x for x in store.objects if x.startswith("wal/")]
        assert min(rows).endswith("000000000129")
        async with open_core(store, "broker-2", settings=KEEPING, wall_us=virtual_us) as other:
            assert (await keys_of(other, "orders", P1, 130))[0] == "k131"
            with pytest.raises(PositionGone):  # this one has nothing of it in memory
                await other.read("orders", RangeId(P1), 0)


async def test_an_object_is_kept_while_one_of_its_collections_keeps_it() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=1, settings=KEEPING) as core:
        await create_collection(core.catalogs, "users", parts=1)
        await asyncio.sleep(1)
        await put(core, "users", batch(P1, "u"))
        await fill(core, P1, 100)
        await retain(core.catalogs, "orders", seconds=20, bytes_=None)
        await asyncio.sleep(60)
        assert topology_of(core.index, "orders").partitions[0].start > 0
        assert await keys_of(core, "users", P1) == ["u"]
        assert "wal/00000001/broker-1/000000000001" in store.objects


async def test_what_two_masters_cut_by_one_catalog_is_cut_by_one_of_them() -> None:
    async with first_broker(MemoryStore(), parts=2) as core:
        await put(core, "orders", batch(P1, "a", "b"), batch(P2, "c", "d"))
        catalog = core.catalog
        cut = with_cuts(catalog, {("orders", RangeId(P1)): Gone(1, 9)}, {})
        assert is_as_it_was(catalog, catalog)
        assert not is_as_it_was(catalog, cut)
        await create_collection(core.catalogs, "returns", parts=1)
        assert is_as_it_was(catalog, core.catalog)


async def test_what_is_to_be_kept_for_ever_by_now_is_not_cut_as_was_asked_before() -> None:
    store = WatchedStore()
    by_another = list[str]()

    async def keep_all(call: str, key: str) -> None:
        if call == "create" and key.startswith(CATALOGS) and not by_another:
            by_another.append(key)
            catalogs = CatalogStore(store, await open_cluster(store))
            await catalogs.load()
            await retain(catalogs, "orders", seconds=None, bytes_=None)

    async with first_broker(store, parts=1, settings=KEEPING) as core:
        await fill(core, P1, 200)
        await retain(core.catalogs, "orders", seconds=40, bytes_=None)
        store.before = keep_all
        await asyncio.sleep(30)
        assert by_another
        assert topology_of(core.index, "orders").partitions[0].start == 0
