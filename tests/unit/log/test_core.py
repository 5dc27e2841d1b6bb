"""One broker over a store in memory: records in, records out."""

import asyncio
import dataclasses

import msgspec
import pytest

from changefeed.feeds.errors import FeedRefused, RangeDamaged, RangeUnknown
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.run_core import open_core
from changefeed.log.catalog.catalog import Member, Truncation
from changefeed.log.catalog.names import CATALOG, flush_key
from changefeed.log.catalog.transitions import with_kept_from, with_member
from changefeed.log.maintenance.retention import with_truncations
from changefeed.log.protocol.messages import AppendReceipt, AppendRequest, Topology
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import PartitionBounds
from changefeed.log.reading.stored_collection import SegmentRows, StoredCollection
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import StoreRefused
from tests.support.brokers import (
    QUICK,
    batch,
    fill,
    first_broker,
    in_era,
    keys_of,
    put,
    refused,
    request,
)
from tests.support.watched_store import Call, WatchedStore

P1, P2 = "e1.p01.v00-ff", "e1.p02.v00-ff"

US = Member(incarnation="i")


async def test_a_request_that_is_sent_again_is_stored_once() -> None:
    async with first_broker(MemoryStore()) as core:
        asked = request(batch(P1, "a", "b"), batch(P2, "c"))
        assert await core.append("orders", asked) == AppendReceipt(firsts=(1, 1))
        assert await core.append("orders", asked) == AppendReceipt(duplicate=True)
        assert await keys_of(core, "orders", P1) == ["a", "b"]


@pytest.mark.parametrize(
    "other",
    [
        request(batch(P1, "x", "y")),  # other records under a number that is there
        request(batch(P1, "a"), number=2),
        request(batch(P1, "c")),
    ],
    ids=["1", "2", "3"],
)
async def test_a_number_that_another_producer_of_the_same_id_has_used_is_refused(
    other: AppendRequest,
) -> None:
    async with first_broker(MemoryStore()) as core:
        await core.append("orders", request(batch(P1, "a", "b")))
        await core.append("orders", request(batch(P1, "c"), number=2))
        assert await refused(core, other) == "taken"
        assert await keys_of(core, "orders", P1) == ["a", "b", "c"]
        assert isinstance(
            await core.append("orders", request(batch(P1, "d"), number=3)), AppendReceipt
        )


async def test_a_request_that_was_given_up_is_not_stored_behind_what_followed_on_it() -> None:
    async with first_broker(MemoryStore()) as core:
        given_up = request(batch(P1, "b"), number=2)
        for asked in (
            request(batch(P1, "a")),
            request(batch(P1, "c"), generation=1),
            request(batch(P1, "d"), generation=1, number=2),
        ):
            assert isinstance(await core.append("orders", asked), AppendReceipt)
            if asked.generation:
                assert await refused(core, given_up) == "taken"
                assert await refused(core, request(batch(P1, "a"))) == "taken"
        assert await keys_of(core, "orders", P1) == ["a", "c", "d"]


async def test_a_request_that_comes_early_waits_a_second_for_those_before_it() -> None:
    async with first_broker(MemoryStore()) as core:
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        assert await refused(core, request(batch(P1, "c"), number=3)) == "gap"
        assert loop.time() - began == pytest.approx(1.0, abs=0.1)
        async with asyncio.TaskGroup() as group:
            for number in (3, 2, 1):
                asked = request(batch(P1, f"k{number}"), number=number)
                group.create_task(core.append("orders", asked))
                await asyncio.sleep(0.2)
        assert await keys_of(core, "orders", P1) == ["k1", "k2", "k3"]


async def test_a_request_of_which_one_range_is_not_ours_stores_nothing() -> None:
    store = MemoryStore()
    async with (
        first_broker(store) as first,
        open_core(store, "broker-2", settings=QUICK) as second,
    ):
        await in_era(second, 2)
        ours, theirs = batch("e2.p01.v00-ff", "a"), batch("e2.p12.v00-ff", "b")
        with pytest.raises(FeedRefused, match="of one broker in one era"):
            await first.append("orders", request(ours, theirs))
        assert await refused(first, request(theirs)) == "elsewhere"
        assert await refused(first, request(ours, batch("e9.p01.v00-ff", "c"))) == "unknown"
        assert await keys_of(first, "orders", "e2.p01.v00-ff") == []


async def test_a_damaged_object_is_named_by_reads_and_read_again_once_it_is_restored() -> None:
    store = MemoryStore()
    async with first_broker(store) as core:
        await put(core, "orders", batch(P1, "a", "b"))
        key = "wal/00000001/broker-1/000000000001"
        whole = store.objects[key]
        store.objects[key] = whole[:-1] + bytes([whole[-1] ^ 1])
        core.readers.cache.windows.pop((1, "broker-1", 1))
        for _ in range(2):
            with pytest.raises(RangeDamaged, match=f"{key} is not what was written"):
                await core.read("orders", RangeId(P1), 0)
            with pytest.raises(RangeDamaged, match=f"{key} is not what was written"):
                await core.sequence_before("orders", RangeId(P1), 0)
        store.objects[key] = whole
        assert await keys_of(core, "orders", P1) == ["a", "b"]


async def test_clients_compute_the_partitions_of_all_eras_as_brokers_do() -> None:
    async with first_broker(MemoryStore(), parts=2) as core:
        for era in (1, 2):
            await core.catalogs.split("orders")
            while core.status().era <= era or not core.status().writing:
                await core.writer.changed.wait()
        sent = msgspec.json.decode(msgspec.json.encode(core.shown("orders")), type=Topology)
        whole = [*Routes(sent, "http").partitions.all()]
        assert whole == [*core.ranges.of("orders").all()]
        assert [len([x for x in whole if x.era == n]) for n in (1, 2, 3)] == [2, 4, 8]
        for x in whole:
            assert core.ranges.of("orders").partition(x.id) == x
            parents = core.ranges.of("orders").parents(x)
            assert {y.era for y in parents} == ({x.era - 1} if x.era > 1 else set())
            assert all(y.part == x.part and y.low <= x.low <= y.high for y in parents)


@pytest.mark.parametrize("nth", [2, 3, 4])
async def test_what_comes_while_a_time_is_looked_for_is_not_passed_over(nth: int) -> None:
    store, partition, asked = WatchedStore(), RangeId("e2.p01.v00-ff"), list[str]()

    async def come(call: Call, key: str) -> None:
        if call == "get" and key == flush_key(2, "broker-1", 11):
            asked.append(key)
            if len(asked) == nth:
                await put(core, "orders", batch(partition, "late", at_us=100))

    async with first_broker(store, parts=2) as core, first_broker(store, "broker-2") as other:
        await in_era(core, 2)
        await fill(core, partition, 10)
        store.before = come
        assert await other.sequence_before("orders", partition, 100) == 10


@pytest.mark.parametrize("when", ["before", "amid"])
@pytest.mark.parametrize("what", ["records", "part", "end", "first", "time"])
async def test_an_engine_takes_what_was_deleted_since_its_catalog_for_no_damage_and_no_end(
    what: str, when: str
) -> None:
    store, count = WatchedStore(), 128 if what == "end" else 64
    # The first look is at object 48. The others are at one with a table.
    seen = flush_key(1, "broker-1", 48 if what == "first" else count - 63)
    async with first_broker(store) as core:
        await fill(core, P1, 10)
        engine = await StoredCollection.open(store, "orders")
        if when == "before":
            assert (await engine.end(RangeId(P1))).last == 10
        await fill(core, P1, 60, first=11)

        async def delete() -> None:
            await fill(core, P1, count - 64, first=71)
            gone = {RangeId(P1): Truncation(count, count)}
            await core.catalogs.change_collection("orders", lambda x: with_truncations(x, gone))
            await core.catalogs.change(
                lambda x: with_kept_from(x, {(1, "broker-1"): count + 1})
            )
            await store.delete([flush_key(1, "broker-1", x + 1) for x in range(count)])

        async def deleted(call: Call, key: str) -> None:
            if call == "get" and key == seen and key in store.objects:
                await delete()

        if when == "before":
            await delete()
            engine._readers.cache.headers.pop(flush_key(1, "broker-1", 1))
            engine._readers.cache.windows.pop((1, "broker-1", 1))
        store.before = deleted
        if what == "records":
            result = await engine.read(RangeId(P1), after=64, most=1, wait=0)
            assert result.blocks[0].first == 65
        elif what == "part":
            part = await engine.part(RangeId(P1), 64, 70, 1000)
            assert not isinstance(part, SegmentRows)
            assert [(x.first, x.last) for x in part] == [(65, 70)]
        elif what in ("end", "first"):
            assert await engine.end(RangeId(P1)) == PartitionBounds(start=count, last=count + 6)
        else:
            assert await engine.sequence_before(RangeId(P1), 70) == 69
        assert seen not in store.objects


@pytest.mark.parametrize(
    "name", ["e1.p03.v00-ff", "e9.p01.v00-ff", "e1", "", "x1.p01.v00-ff", "e99999999999.p01"]
)
async def test_a_range_that_there_never_was_is_unknown(name: str) -> None:
    async with first_broker(MemoryStore(), parts=2) as core:
        assert not core.ranges.of("orders").has(RangeId(name))
        with pytest.raises(RangeUnknown):
            await core.read("orders", RangeId(name), 0)


@pytest.mark.parametrize("place", [0, 8, 9, 100, -1])
async def test_a_catalog_that_is_not_what_was_written_stops_brokers_and_nothing_is_written(
    place: int,
) -> None:
    store = MemoryStore()
    async with first_broker(store, parts=1):
        pass
    flipped = bytearray(store.objects[CATALOG])
    flipped[place] ^= 1
    store.objects[CATALOG] = bytes(flipped)
    before = dict(store.objects)
    with pytest.raises(FeedRefused, match=r"catalog .* restore it from a copy"):
        async with open_core(store, "broker-2", settings=QUICK):
            pass
    assert store.objects == before


@pytest.mark.parametrize("wrong", [b"00000000\n{}", None])
async def test_a_broker_says_that_the_catalog_is_damaged_until_it_is_restored(
    wrong: bytes | None,
) -> None:
    store = MemoryStore()
    async with first_broker(store) as core:
        whole = store.objects.pop(CATALOG)
        if wrong is not None:
            store.objects[CATALOG] = wrong
        await asyncio.sleep(10)
        assert "restore it from a copy" in core.failing["follow"]
        assert store.objects.get(CATALOG) == wrong
        assert await put(core, "orders", batch(P1, "a")) == [1]
        store.objects[CATALOG] = whole
        await asyncio.sleep(60)
        assert not core.failing


async def test_a_broker_refuses_a_catalog_that_is_older_than_what_it_has_seen() -> None:
    store = MemoryStore()
    async with first_broker(store) as core:
        older = store.objects[CATALOG]
        await core.catalogs.change(lambda x: with_member(x, "b", US))
        store.objects[CATALOG] = older
        with pytest.raises(FeedRefused, match="restored from an older copy"):
            await core.catalogs.change(lambda x: with_member(x, "c", US))
        assert store.objects[CATALOG] == older


async def test_a_loop_that_fails_stops_nothing_else_and_says_why_until_it_succeeds() -> None:
    async def fail() -> None:
        raise OverflowError("cannot convert float infinity to integer")

    settings = dataclasses.replace(QUICK, retention_interval=1.0)
    async with first_broker(MemoryStore(), settings=settings) as core:
        really, core.retention.step = core.retention.step, fail  # type: ignore[method-assign]
        await asyncio.sleep(100)
        assert core.failing == {"retention": "cannot convert float infinity to integer"}
        assert await put(core, "orders", batch(P1, "a")) == [1]
        core.retention.step = really  # type: ignore[method-assign]
        await asyncio.sleep(100)
        assert not core.failing


async def test_a_broker_that_may_not_create_does_not_start() -> None:
    async def locked(call: str, _: str) -> None:
        if call in ("create", "put"):
            raise StoreRefused("this user may not create objects: give it the right to")

    store = WatchedStore()
    store.before = locked
    with pytest.raises(StoreRefused, match="give it the right to"):
        async with open_core(store, "broker-1", settings=QUICK):
            pass
    assert not store.objects


async def test_a_store_that_refuses_all_for_a_while_is_waited_for_and_nothing_is_lost() -> None:
    refuses = [False]

    async def refuse(_call: str, _key: str) -> None:
        if refuses[0]:
            raise StoreRefused("403, while keys are renewed")

    store, every = WatchedStore(), dataclasses.replace(QUICK, compaction=True)
    store.before = refuse
    async with first_broker(store, settings=every) as core:
        assert await put(core, "orders", batch(P1, "a")) == [1]
        refuses[0] = True
        waiting = asyncio.create_task(put(core, "orders", batch(P1, "b")))
        await asyncio.sleep(600)
        assert not waiting.done()
        refuses[0] = False
        assert await waiting == [2]
        await core.catalogs.split("orders")
        await in_era(core, 2)
        assert not core.failing
    async with open_core(store, "broker-2", settings=QUICK) as other:
        assert await keys_of(other, "orders", P1) == ["a", "b"]
