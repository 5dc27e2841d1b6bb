"""Eras of a cluster: brokers that join, leave and die, over one store in virtual time."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import pytest

from changefeed.brokers.core import BrokerCore
from changefeed.brokers.operations import create_collection, split
from changefeed.brokers.run_core import leave, open_core
from changefeed.feeds.brokers.catalog_store import CatalogStore, open_cluster
from changefeed.feeds.brokers.flush import Place, decode_header
from changefeed.feeds.brokers.protocol import Appended
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from changefeed.feeds.brokers.stores.store import MISSING, version_of
from changefeed.feeds.brokers.transitions import with_member
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.eventlog.ids import range_id
from changefeed.feeds.feed import RangeId
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
)
from tests.support.watched_store import WatchedStore


def ids(era: int, parts: range) -> list[str]:
    return [range_id(era=era, part=x, low=0, high=255) for x in parts]


def owners(core: BrokerCore) -> dict[str, str]:
    return {x.id: x.broker for x in core.ranges.of("orders").open}


async def test_a_second_broker_joins_and_leaves_as_the_project_was_asked_for() -> None:
    store = MemoryStore()
    async with first_broker(store) as first:
        assert owners(first) == dict.fromkeys(ids(1, range(1, 13)), "broker-1")
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            await in_era(first, 2)
            await second.look_for("orders")
            assert owners(first) == owners(second)
            assert owners(first) == {
                **dict.fromkeys(ids(2, range(1, 7)), "broker-1"),
                **dict.fromkeys(ids(2, range(7, 13)), "broker-2"),
            }
            for name in ids(1, range(1, 13)):
                assert (await second.read("orders", RangeId(name), 0)).ended
            await leave(second)
        await in_era(first, 3)
        assert owners(first) == dict.fromkeys(ids(3, range(1, 13)), "broker-1")


@pytest.mark.parametrize("sealed_by", ["its broker", "the master"])
async def test_another_producer_of_the_same_id_learns_of_a_closed_partition_that_it_is_not_its(
    sealed_by: str,
) -> None:
    store = MemoryStore()
    old = "e1.p01.v00-ff"
    async with first_broker(store) as first:
        mine = [request(batch(old, "a", "b")), request(batch(old, "c"), number=2)]
        for x in mine:
            await first.append("orders", x)
        await put(first, "orders", batch(old, "q"))
        if sealed_by == "its broker":
            await split(first.catalogs, "orders")
            await in_era(first, 2)
    async with open_core(store, "broker-2", settings=QUICK) as second:
        await in_era(second, 3 if sealed_by == "its broker" else 2)
        for number, other in ((1, "x"), (1, "a"), (2, "b")):
            asked = request(batch(old, other), number=number)
            assert await refused(second, asked) == "taken"
        for x in mine:
            assert await second.append("orders", x) == Appended(duplicate=True)
        for not_stored in (
            request(batch(old, "d"), number=3),
            request(batch(old, "e"), producer="r"),
        ):
            assert await refused(second, not_stored) == "moved"


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


async def test_a_batch_for_a_partition_of_another_broker_is_not_stored() -> None:
    store = MemoryStore()
    async with (
        open_core(store, "broker-1", settings=QUICK) as first,
        open_core(store, "broker-2", settings=QUICK) as second,
    ):
        await create_collection(first.catalogs, "orders")
        await asyncio.sleep(5)
        theirs = next(x for x, y in owners(first).items() if y == "broker-2")
        assert await refused(first, request(batch(theirs, "a"))) == "elsewhere"
        assert await keys_of(second, "orders", theirs) == []


async def test_the_partitions_of_a_dead_broker_are_closed_at_what_it_acknowledged() -> None:
    store = MemoryStore()
    async with first_broker(store) as first:
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            await put(second, "orders", batch("e2.p07.v00-ff", "a", "b", "c"))
        await in_era(first, 3)  # leaving the block is a crash: it took nothing back
        assert await keys_of(first, "orders", "e2.p07.v00-ff") == ["a", "b", "c"]
        assert (await first.read("orders", RangeId("e2.p07.v00-ff"), 3)).ended
        seal = store.objects["wal/00000002/broker-2/000000000002"]
        identity = first.cluster.identity
        header = decode_header(seal, identity, Place(2, "broker-2", 2))
        assert (header.seal, header.incarnation) == (True, first.incarnation)


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
        store.objects[key] = whole
        assert (await first.end("orders", theirs)).last == 40
        assert await keys_of(first, "orders", theirs) == [f"k{n}" for n in range(1, 41)]
        assert not first.failing


async def test_an_object_behind_the_seal_is_never_read() -> None:
    store = MemoryStore()
    async with first_broker(store) as first:
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            await put(second, "orders", batch("e2.p07.v00-ff", "a"))
            late = store.objects["wal/00000002/broker-2/000000000001"]
        await in_era(first, 3)
        store.objects["wal/00000002/broker-2/000000000003"] = late
        async with open_core(store, "broker-3", settings=QUICK) as third:
            await in_era(third, 4)
            assert await keys_of(third, "orders", "e2.p07.v00-ff") == ["a"]


async def test_the_newest_catalog_is_found_also_from_far_behind() -> None:
    store = MemoryStore()
    cluster = await open_cluster(store)
    writer, reader = CatalogStore(store, cluster), CatalogStore(store, cluster)
    for n in range(5):
        await writer.change(partial(with_member, broker=f"b{n}"))
    assert (await reader.refresh()).number == 5
    assert reader.newest == writer.newest
    assert [x for x in store.objects if x.startswith("catalog")] == ["catalog"]


async def test_the_same_catalog_under_another_version_is_no_older_copy() -> None:
    """A store that was copied, or that is encrypted anew, has new versions of all objects."""

    class Copied(MemoryStore):
        copies = 0

        def _version(self, key: str) -> str:
            return f"{self.copies} {super()._version(key)}" if key in self.objects else MISSING

        async def replace(self, key: str, data: bytes, version: str) -> str | None:
            done = await super().replace(key, data, version)
            return None if done is None else self._version(key)

    store = Copied()
    catalogs = CatalogStore(store, await open_cluster(store))
    await catalogs.change(lambda x: with_member(x, "b0"))
    store.copies += 1
    assert (await catalogs.refresh()).number == 1
    await catalogs.change(lambda x: with_member(x, "b1"))
    assert catalogs.newest.number == 2


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
            await create_collection(other, "of-another")
            await split(other, "of-another")

    async def nothing(_call: str, _key: str) -> None:
        pass

    for n, doing in enumerate((answer_is_lost, tried_twice)):
        store.replace = doing  # type: ignore[method-assign]
        await create_collection(catalogs, f"c{n}", parts=1)
        await split(catalogs, f"c{n}")
        assert catalogs.newest.reshaping[f"c{n}"] == ((0, 128),)  # twice: quarters
    store.replace = replace_really  # type: ignore[method-assign]
    await create_collection(catalogs, "c2")
    store.before = second
    await split(catalogs, "c2")
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


async def test_where_the_store_does_not_say_what_is_stored_batches_beside_it_have_answers() -> (
    None
):
    store = WatchedStore()

    async def cut_off(_: str, key: str) -> None:
        if key.startswith("wal/00000001/"):
            raise StoreUnavailable("cut off")

    async with first_broker(store) as first:
        old = "e1.p01.v00-ff"
        await put(first, "orders", batch(old, "a"))
        async with open_core(store, "broker-2", settings=QUICK) as second:
            await in_era(second, 2)
            async with open_core(store, "broker-3", settings=QUICK) as third:
                await in_era(third, 3)
                store.before = cut_off
                await in_era(first, 3)
                fresh = batch(open_ids(first, "orders")[-1], "b")
                assert await refused(third, request(batch(old, "a"))) == "moving"
                assert await put(third, "orders", fresh) == [1]


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
        await create_collection(first.catalogs, "orders")
        await in_era(first, 1)
        await in_era(second, 1)
        await split(first.catalogs, "orders")
        async with asyncio.timeout(60):
            while (era := first.catalog.era) is None or era.state != "ending":
                await first.watch.wait_for_newer(first.catalog.number, 60.0)
        began = loop.time()
        second.watch.hear_of(first.catalog.number)  # as each request of a producer says
        await in_era(first, 2)
        await in_era(second, 2)
        assert loop.time() - began < 0.2


async def test_a_batch_for_a_partition_that_was_opened_a_moment_ago_is_taken() -> None:
    store = MemoryStore()
    slow = replace(QUICK, catalog_interval=5.0)
    async with open_core(store, "broker-1", settings=slow) as core:
        await create_collection(core.catalogs, "orders", parts=1)
        await core.wait_until_writing()
        elsewhere = CatalogStore(store, await open_cluster(store))
        await create_collection(elsewhere, "payments", parts=1)
        assert await put(core, "payments", batch("e1.p01.v00-ff", "a")) == [1]


async def test_who_waits_for_a_newer_catalog_has_it_at_once() -> None:
    store, loop = MemoryStore(), asyncio.get_running_loop()
    async with first_broker(store) as core:
        began = loop.time()
        await core.watch.wait_for_newer(core.catalog.number, 1.0)
        assert loop.time() - began == 1.0
        waiting = asyncio.create_task(core.watch.wait_for_newer(core.catalog.number, 60.0))
        await asyncio.sleep(1)
        await core.catalogs.change(lambda x: with_member(x, "b"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waiting.done()
        assert loop.time() - began == 2.0
