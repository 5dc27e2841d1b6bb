"""Homes of closed partitions follow from the newest era, and read ahead what they become."""

import asyncio

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.run_core import open_core
from changefeed.runtime.errors import StoreUnavailable
from tests.support.brokers import QUICK, batch, first_broker, in_era, keys_of, put
from tests.support.watched_store import WatchedStore

OLD = tuple(RangeId(f"e1.p{n:02}.v00-ff") for n in range(1, 13))


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
