"""Eras of a cluster: brokers that join, leave and die, over one store in virtual time."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.members import Heartbeat
from changefeed.log.brokers.run_core import no_answer, open_core
from changefeed.log.catalog.catalog import Row
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.catalog.transitions import open_first_era, with_kept_from
from changefeed.log.ids import range_id
from changefeed.log.reading.stored_collection import StoredCollection
from changefeed.log.rows.open_row import OpenRow, WriterPlace
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import version_of
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from tests.support.brokers import (
    QUICK,
    batch,
    first_broker,
    in_era,
    keys_of,
    open_ids,
    put,
    refused,
    request,
    virtual_us,
)
from tests.support.looking import now
from tests.support.watched_store import WatchedStore


def ids(era: int, parts: range) -> list[str]:
    return [range_id(era=era, part=x, low=0, high=255) for x in parts]


async def test_where_a_closed_row_is_damaged_a_request_waits_and_others_are_stored() -> None:
    store = MemoryStore()
    async with first_broker(store) as first:
        old = "e1.p01.v00-ff"
        await put(first, "orders", batch(old, "a"))
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            key = "wal/00000001/broker-1/000000000002"  # its seal: what the row ends with
            whole = store.objects[key]
            store.objects[key] = whole[:20]
            fresh = batch(open_ids(first, "orders")[-1], "b")
            async with open_core(store, "broker-3", settings=QUICK) as third:
                assert await refused(third, request(batch(old, "a"))) == "moving"
                assert await refused(third, request(fresh)) == "elsewhere"
                store.objects[key] = whole
                assert await refused(third, request(batch(old, "a"))) == "moved"


async def test_a_living_broker_that_does_not_end_its_row_is_waited_for_a_while() -> None:
    store, stuck = MemoryStore(), WatchedStore()
    stuck.objects, stuck.times = store.objects, store.times

    async def never_ends(call: str, _: str) -> None:
        await asyncio.sleep(60.0 if call == "create" else 0.0)

    async with (
        first_broker(store) as first,
        open_core(stuck, "broker-2", settings=QUICK, wall_us=virtual_us),
    ):
        await in_era(first, 2)
        stuck.before, began = never_ends, now()
        await first.catalogs.split("orders")
        await in_era(first, 3)
        assert 3.0 <= now() - began < 5.0


@pytest.mark.parametrize("beats", [True, False])
async def test_a_damaged_object_of_a_dead_broker_keeps_no_era_from_opening(
    *, beats: bool
) -> None:
    """With or without a sign of life that says that the object was acknowledged."""
    store = MemoryStore()
    theirs, key = RangeId("e2.p07.v00-ff"), "wal/00000002/broker-2/000000000003"
    async with first_broker(store) as first:
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            for n in range(1, 41):
                await put(second, "orders", batch(theirs, f"k{n}"))
            if beats:
                await asyncio.sleep(2)
        whole = store.objects[key]
        store.objects[key] = whole[:20]
        await in_era(first, 3)
        assert first.catalog.eras[1].rows[1].sealed_at == 41
        assert (await first.read("orders", RangeId("e2.p01.v00-ff"), 0)).ended
        assert await put(first, "orders", batch("e3.p07.v00-ff", "new")) == [1]
        assert await refused(first, request(batch(theirs, "k40"), number=40)) == "moving"
        with pytest.raises(RangeDamaged):
            await keys_of(first, "orders", theirs)
        feed, next_era = await StoredCollection.open(store, "orders"), RangeId("e3.p07.v00-ff")
        news = await feed.news({theirs: 0, next_era: 0}, wait=0)
        assert {x: y.last for x, y in news.items()} == {theirs: None, next_era: 1}
        store.objects[key] = whole
        assert (await first.end("orders", theirs)).last == 40
        assert await keys_of(first, "orders", theirs) == [f"k{n}" for n in range(1, 41)]
        assert not first.failing


async def test_a_master_that_was_frozen_ends_no_row_where_its_beginning_is_deleted_by_now() -> (
    None
):
    store, dead = MemoryStore(), Row(broker="broker-2", incarnation="i")
    heartbeat = Heartbeat(name="broker-1", incarnation="j", beat=0)
    cluster = await open_cluster(store)
    core = BrokerCore(store, cluster, heartbeat, QUICK, ping=no_answer, clock=now)
    frozen = await core.catalogs.change(lambda x: open_first_era(x, [dead], 0))
    row = OpenRow(WriterPlace(cluster.identity, 1, dead.broker, dead.incarnation), last=64)
    for _ in range(6):
        row.add(made := row.make({}))
        await store.create(made.key, made.data)
    other = CatalogStore(store, cluster)
    await other.change(lambda x: with_kept_from(x, {(1, dead.broker): 65}))
    await core.master._seal(frozen, dead.broker)
    reader = core.readers.row(other.newest, 1, dead.broker)
    assert await reader.tail() == reader.sealed_at == 71


async def test_a_change_whose_answer_is_lost_or_that_is_second_is_made_once() -> None:
    store = WatchedStore()
    cluster = await open_cluster(store)
    catalogs, other = CatalogStore(store, cluster), CatalogStore(store, cluster)
    replace_really = store.replace

    async def answer_is_lost(key: str, data: bytes, version: str) -> str | None:
        await replace_really(key, data, version)
        raise StoreUnavailable("the answer was lost")

    async def tried_twice(key: str, data: bytes, version: str) -> str | None:
        await replace_really(key, data, version)
        return await replace_really(key, data, version)

    async def second(call: str, _: str) -> None:
        if call == "replace":
            store.before = nothing
            await other.create("of-another")
            await other.split("of-another")

    async def nothing(_call: str, _key: str) -> None:
        pass

    for n, doing in enumerate((answer_is_lost, tried_twice)):
        store.replace = doing  # type: ignore[method-assign]
        await catalogs.create(f"c{n}", parts=1)
        await catalogs.split(f"c{n}")
        assert catalogs.newest.reshaping[f"c{n}"] == ((0, 128),)  # twice: quarters
    store.replace = replace_really  # type: ignore[method-assign]
    await catalogs.create("c2")
    store.before = second
    await catalogs.split("c2")
    assert catalogs.newest.reshaping.keys() == {"c0", "c1", "c2", "of-another"}
    assert (await other.refresh()).reshaping == catalogs.newest.reshaping


async def test_a_store_that_replaces_whatever_is_there_is_refused_and_holds_nothing() -> None:
    class Careless(MemoryStore):
        async def replace(self, key: str, data: bytes, version: str) -> str | None:
            del version
            await self.put(key, data)
            return version_of(data)

    store = Careless()
    with pytest.raises(StoreRefused, match="If-Match"):
        await open_cluster(store)
    assert store.objects == {}


async def test_after_a_crash_records_are_taken_once_the_broker_has_expired_and_no_later() -> (
    None
):
    """Seen a heartbeat late at most; the rest is a few looks at the catalog."""
    store, loop = MemoryStore(), asyncio.get_running_loop()
    async with first_broker(store) as first, AsyncExitStack() as killed:
        second = await killed.enter_async_context(open_core(store, "broker-2", settings=QUICK))
        await in_era(second, 2)
        await asyncio.sleep(5)  # both are seen to move
        await killed.aclose()
        died = loop.time()
        await in_era(first, 3)
        late = loop.time() - died - QUICK.expiration
        assert -QUICK.heartbeat <= late < QUICK.heartbeat + 0.1


async def test_while_an_era_is_ending_the_brokers_look_for_the_next_all_the_time() -> None:
    store, loop = MemoryStore(), asyncio.get_running_loop()
    slow = replace(QUICK, catalog_interval=5.0)
    async with (
        open_core(store, "broker-1", settings=slow) as first,
        open_core(store, "broker-2", settings=slow) as second,
    ):
        await first.catalogs.create("orders")
        await in_era(first, 1)
        await in_era(second, 1)
        await first.catalogs.split("orders")
        async with asyncio.timeout(60):
            while (era := first.catalog.era) is None or era.state != "ending":
                await first.watch.wait_for_newer(first.catalog.number, 60.0)
        began = loop.time()
        second.watch.hear_of(first.catalog.number)  # as each request of a producer says
        await in_era(first, 2)
        await in_era(second, 2)
        assert loop.time() - began < 0.2
