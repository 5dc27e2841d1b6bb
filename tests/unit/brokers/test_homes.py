"""Homes of closed partitions: those that a master plans, and those that people choose."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from changefeed.brokers.core import BrokerCore
from changefeed.brokers.homes import with_homes_planned
from changefeed.brokers.operations import move
from changefeed.brokers.run_core import leave, open_core
from changefeed.feeds.brokers.catalog import encode_catalog
from changefeed.feeds.brokers.catalog_index import CatalogIndex
from changefeed.feeds.brokers.errors import ClusterRefused
from changefeed.feeds.brokers.names import CATALOGS
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import StoreUnavailable
from tests.support.brokers import (
    QUICK,
    batch,
    first_broker,
    keys_of,
    open_ids,
    put,
)
from tests.support.watched_store import WatchedStore

OLD = tuple(RangeId(f"e1.p{n:02}.v00-ff") for n in range(1, 13))
HALVES = ["broker-1"] * 6 + ["broker-2"] * 6


def homes(core: BrokerCore) -> list[str]:
    """Return the homes of the first era's ranges."""
    found = {x.range.id: x for x in topology_of(core.index, "orders").partitions}
    return [found[x].home for x in OLD]


@asynccontextmanager
async def with_records(store: MemoryStore) -> AsyncIterator[BrokerCore]:
    async with first_broker(store) as first:
        await put(first, "orders", *(batch(x, "a") for x in OLD))
        yield first


@asynccontextmanager
async def joined(store: MemoryStore) -> AsyncIterator[BrokerCore]:
    """Run the second broker, which becomes the home of half of the first era."""
    async with open_core(store, "broker-2", settings=QUICK) as second:
        async with asyncio.timeout(60):
            while homes(second) != HALVES:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.1)
        yield second


async def test_a_broker_that_joins_becomes_the_home_of_what_was_before_on_its_keys() -> None:
    store = MemoryStore()
    async with with_records(store) as first:
        async with joined(store) as second:
            misses = second.status().cache_misses
            assert misses == 1  # one object holds all: it was read before they moved
            assert await keys_of(second, "orders", OLD[6]) == ["a"]
            assert second.status().cache_misses == misses
            await leave(second)
        await asyncio.sleep(10)
        assert homes(first) == ["broker-1"] * 12


async def test_homes_move_though_the_store_fails_now_and_then() -> None:
    store, tried = WatchedStore(), set[str]()

    async def fail_once(call: str, key: str) -> None:
        if call == "create" and key.startswith(CATALOGS) and key not in tried:
            tried.add(key)
            raise StoreUnavailable("not now")

    async with with_records(store):
        store.before = fail_once
        async with joined(store):
            assert tried


async def test_a_few_homes_move_at_a_time() -> None:
    store = MemoryStore()
    async with with_records(store), joined(store) as second:
        (orders,) = second.catalog.collections
        as_before = tuple(
            replace(x, home="broker-1") if x.era == 1 else x for x in orders.partitions
        )
        still = replace(second.catalog, collections=(replace(orders, partitions=as_before),))
        planned = with_homes_planned(CatalogIndex(still), 4)
        moving = [x.moving_to for x in planned.collections[0].partitions if x.moving_to]
        assert moving == ["broker-2"] * 4
        assert with_homes_planned(CatalogIndex(planned), 4) is planned


async def test_a_range_that_is_moved_stays_there_until_that_is_taken_back() -> None:
    store = MemoryStore()
    async with with_records(store) as first, joined(store) as second:
        await move(second.catalogs, "orders", OLD[0], to="broker-2")
        await asyncio.sleep(5)
        assert homes(first) == ["broker-2", *HALVES[1:]]
        assert await keys_of(second, "orders", OLD[0]) == ["a"]
        await asyncio.sleep(60)
        assert homes(first) == ["broker-2", *HALVES[1:]]
        await move(first.catalogs, "orders", OLD[0], to=None)
        await asyncio.sleep(5)
        assert homes(second) == HALVES
        assert b"homes" not in encode_catalog(second.catalog)


async def test_all_ended_ranges_move_and_come_back_while_the_chosen_broker_is_away() -> None:
    store = MemoryStore()
    async with with_records(store) as first:
        async with joined(store) as second:
            await move(first.catalogs, "orders", None, to="broker-2")
            await asyncio.sleep(5)
            assert homes(first) == ["broker-2"] * 12
            assert {x[:3] for x in first.catalog.collection("orders").chosen_homes} == {"e1."}
            await leave(second)
        await asyncio.sleep(20)
        assert homes(first) == ["broker-1"] * 12
        async with open_core(store, "broker-2", settings=QUICK):
            await asyncio.sleep(20)
            assert homes(first) == ["broker-2"] * 12


async def test_what_cannot_be_moved_is_refused_and_changes_nothing() -> None:
    store = MemoryStore()
    async with with_records(store) as first, joined(store):
        number = (await first.catalogs.refresh()).number
        with pytest.raises(ClusterRefused, match="is open"):
            await move(first.catalogs, "orders", RangeId(open_ids(first, "orders")[0]), to=None)
        with pytest.raises(ClusterRefused, match="give one of broker-1, broker-2"):
            await move(first.catalogs, "orders", OLD[0], to="broker-3")
        with pytest.raises(RangeUnknown):
            await move(first.catalogs, "orders", RangeId("e9.p01.v00-ff"), to="broker-1")
        await move(first.catalogs, "orders", None, to=None)  # they are where they would be
        assert first.catalog.number == number
