"""Compaction: what lies in many flushes becomes segments, and is read on from anywhere."""

import asyncio
import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from changefeed.feeds.errors import RangeDamaged, RangeRefused
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.run_core import leave
from changefeed.log.catalog.catalog import Catalog, Era, Row, Truncation
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.names import compacted_key, flush_key
from changefeed.log.catalog.transitions import close_and_open
from changefeed.log.format.flush import PartitionEnd, decode_header, encode_flush
from changefeed.log.format.pack import Place
from changefeed.log.maintenance.compaction import rows_of, shares
from changefeed.log.maintenance.deletion import delete_segments, deletions_of
from changefeed.log.maintenance.retention import with_truncations
from changefeed.log.protocol.messages import AppendReceipt
from changefeed.log.reading.stored_collection import SegmentRows, StoredCollection
from changefeed.log.rows.object_cache import ObjectCache
from changefeed.log.rows.partition_reader import PartitionReader
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import StoreUnavailable
from tests.support.brokers import batch, fill, keys_of, put, refused, request
from tests.support.compacting import (
    BY_HAND,
    COMPACTING,
    P1,
    broker,
    compactor,
    segment_keys,
    segments,
)
from tests.support.logs import captured_logs
from tests.support.watched_store import LateStore, WatchedStore

pytestmark = pytest.mark.usefixtures("all_in_parquet")


def keys(first: int, last: int) -> list[str]:
    return [f"k{x}" for x in range(first, last + 1)]


def flushes(store: MemoryStore) -> list[int]:
    return sorted(int(x[-12:]) for x in store.objects if x.startswith("wal/00000001/broker-1"))


async def test_flushes_become_segments_and_are_deleted_and_all_is_read() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await fill(core, P1, 200)
        await asyncio.sleep(3)
        assert segments(store) == [(1, 64), (65, 128), (129, 192)]
        assert flushes(store)[0] == 1  # for readers that know an older catalog
        await asyncio.sleep(20)
        assert flushes(store) == [*range(193, 201)]
        assert await keys_of(core, "orders", P1) == keys(1, 200)
        async with broker(store, "broker-2") as other:  # it has nothing in memory
            for after in (0, 63, 64, 100, 191, 192, 199):
                assert await keys_of(other, "orders", P1, after) == keys(after + 1, 200)
            for time in (1, 64, 65, 100, 192, 193, 200):
                assert await other.sequence_before("orders", RangeId(P1), time) == time - 1


async def test_the_last_objects_of_an_era_become_segments_once_it_is_over() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await fill(core, P1, 70)
        async with broker(store, "broker-2") as other:
            await asyncio.sleep(30)
            assert segments(store) == [(1, 64), (65, 70)]
            assert flushes(store) == [71]  # the seal
            for reader in (core, other):
                assert await keys_of(reader, "orders", P1) == keys(1, 70)
                assert (await reader.read("orders", RangeId(P1), 70)).ended
                assert await reader.sequence_before("orders", RangeId(P1), 40) == 39
                assert await reader.sequence_before("orders", RangeId(P1), 71) == 70


async def fill_as_one(core: BrokerCore, count: int) -> None:
    """Append so many records as one producer, each in a request of its own."""
    for n in range(1, count + 1):
        await core.append("orders", request(batch(P1, f"k{n}", at_us=n), number=n))


async def learns_what_is_stored(core: BrokerCore, last: int) -> None:
    """Ask as the producer does that wrote so many records, and as another with its id."""
    for n in (last, last - 4):
        found = await core.append("orders", request(batch(P1, f"k{n}", at_us=n), number=n))
        assert found == AppendReceipt(duplicate=True)
    assert await refused(core, request(batch(P1, "new"), number=last + 1)) == "moved"
    assert await refused(core, request(batch(P1, "x", at_us=last), number=last)) == "taken"


@pytest.mark.parametrize("seal", ["of another", "its own, behind a run that is full"])
async def test_a_producer_that_asks_after_a_compacted_era_learns_what_is_stored(
    seal: str,
) -> None:
    store, count = MemoryStore(), 70 if seal == "of another" else 64
    async with broker(store, settings=BY_HAND) as first:
        await fill_as_one(first, count)
        if seal != "of another":
            await leave(first)
    async with broker(store, "broker-2") as core:
        await asyncio.sleep(60)
        assert flushes(store) == [count + 1]  # a seal that another made has no table
        await learns_what_is_stored(core, count)
        assert await keys_of(core, "orders", P1) == keys(1, count)


async def test_small_rows_wait_until_they_are_old() -> None:
    store = MemoryStore()
    settings = dataclasses.replace(COMPACTING, compaction_objects=4096, compaction_age=100.0)
    async with broker(store, settings=settings) as core:
        await fill(core, P1, 130)
        await asyncio.sleep(60)
        assert segments(store) == []
        await asyncio.sleep(60)
        assert segments(store) == [(1, 128)]


async def test_what_does_not_fit_into_memory_becomes_several_segments() -> None:
    store = MemoryStore()
    settings = dataclasses.replace(COMPACTING, compaction_memory=1000)
    async with broker(store, settings=settings) as core:
        await core.catalogs.create("users", parts=1)
        await asyncio.sleep(1)
        await fill(core, P1, 60)
        await fill(core, P1, 10, name="users")
        await asyncio.sleep(20)
        found = segments(store)
        assert len(found) > 1
        assert (found[0][0], found[-1][1]) == (1, 60)
        assert await keys_of(core, "orders", P1) == keys(1, 60)
        assert await keys_of(core, "users", P1) == keys(1, 10)


def runs(store: MemoryStore) -> list[str]:
    return [x for x in store.objects if x.startswith("compacted/")]


@pytest.mark.parametrize("borders", [(64, 64), (64, 128), (128, 64), (192, 64)])
async def test_two_that_compact_one_row_at_once_do_no_harm(borders: tuple[int, int]) -> None:
    store = WatchedStore()
    store.before = lambda *_: asyncio.sleep(0.001)
    async with broker(store, settings=BY_HAND) as core:
        await fill(core, P1, 200)
        both = [await compactor(core, store, x) for x in borders]
        await asyncio.gather(*(x.step() for x in both))
        found = segments(store)
        assert (found[0][0], found[-1][1]) == (1, 192)
        assert all(y[0] == x[1] + 1 for x, y in pairwise(found)), "none is swept or left over"
        assert await keys_of(core, "orders", P1) == keys(1, 200)


@pytest.mark.parametrize("again", [64, 128])
async def test_a_run_that_was_cut_off_is_made_again_and_leaves_nothing(again: int) -> None:
    store = WatchedStore()
    failures = [StoreUnavailable("not now")]

    async def fail_once(call: str, key: str) -> None:
        if call == "create" and key.startswith("compacted/") and failures:
            raise failures.pop()

    store.before = fail_once
    async with broker(store, settings=BY_HAND) as core:
        await fill(core, P1, 130)
        killed = await compactor(core, store)
        assert (await killed.step(), killed.done.failed) == (False, 1)
        assert segments(store) == [(1, 64)]  # named by no run
        other = await compactor(core, store, again)
        assert await other.step()
        assert segments(store) == ([(1, 64), (65, 128)] if again == 64 else [(1, 128)])


async def test_another_thing_under_a_segments_name_is_not_taken_for_it() -> None:
    store = MemoryStore()
    async with broker(store, settings=BY_HAND) as core:
        await core.catalogs.create("users", parts=1)
        await asyncio.sleep(1)
        await fill(core, P1, 32)
        for n in range(1, 33):
            await put(core, "users", batch(P1, f"u{n}"))
        await fill(core, P1, 1, first=33)
        first = await compactor(core, store)
        await first.step()
        [run] = runs(store)
        del store.objects[run]
        [mine], [theirs] = segment_keys(store), segment_keys(store, "users")
        store.objects[mine] = store.objects[theirs]
        second = await compactor(core, store)
        assert not await second.step()
        assert run not in store.objects
        assert await keys_of(core, "orders", P1) == keys(1, 33)


async def test_a_reader_that_knows_an_old_catalog_finds_in_segments_what_is_gone() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        old = CatalogStore(store, core.cluster)
        known = await old.refresh()
        await old.find("orders")
        rows = RowReaders(store, core.cluster.identity, 1)
        await fill(core, P1, 65)
        await rows.row(known, 1, "broker-1").tail()  # it has the places of all in memory
        await asyncio.sleep(20)
        assert flushes(store) == [65]
        reader = PartitionReader(store, old, rows)
        blocks = await reader.blocks("orders", RangeId(P1), 10, 10**6, fresh=False)
        assert old.newest.number == known.number < core.catalog.number
        assert [x.first for x in blocks] == [1]
        assert blocks[0].count == 64


async def test_a_reader_that_knows_an_old_catalog_finds_in_runs_how_an_era_has_ended() -> None:
    """A newer one may be learned of while what says it is read: many wait for one read."""
    store = MemoryStore()
    async with broker(store, settings=BY_HAND) as first:
        await fill_as_one(first, 70)
        reader = RowReader(store, first.cluster.identity, 1, "broker-1", ObjectCache(1))
        assert await reader.runs.look() == 0
    async with broker(store, "broker-2") as core:
        await asyncio.sleep(60)
        assert flushes(store) == [71]  # the seal of another, which has no table
        del store.objects[compacted_key(1, "broker-1", 1)]  # as retention does
        reader.learn(replace(core.catalog.eras[0].rows[0], kept_from=1))
        assert (await reader.ends())["orders", RangeId(P1)].last == 70
        assert [x.number for x in (await reader.producers()).values()] == [70]


async def test_of_a_row_that_is_compacted_all_the_time_objects_are_deleted() -> None:
    store, said = MemoryStore(), [1, 1]
    async with broker(store) as core:
        for n in range(10):  # with each look more is in runs than with the one before
            await fill(core, P1, 64, first=64 * n + 1)
            await asyncio.sleep(2)
            said.append(core.catalog.eras[0].rows[0].kept_from)
            assert flushes(store)[0] <= said[-3], "the grace of what came since is not over"
        assert flushes(store)[0] > 256
        await asyncio.sleep(20)
        assert flushes(store)[0] == said[-1]


async def test_retention_deletes_whole_segments_and_says_so_first() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await core.catalogs.create("users", parts=1)
        await asyncio.sleep(1)
        await put(core, "users", batch(P1, "u1"))
        await fill(core, P1, 200, pause=1)
        assert len(segments(store)) == 3
        await core.catalogs.retain("orders", seconds=100, bytes_=None)
        await asyncio.sleep(11)
        start = (await core.end("orders", RangeId(P1))).start
        assert start == 63  # what the first run has, beside the other collection's record
        with pytest.raises(RangeRefused, match="deleted by retention"):
            await core.read("orders", RangeId(P1), 0)
        assert segments(store)[0] == (1, 63)  # the grace is not over
        await asyncio.sleep(12)
        assert segments(store)[0] == (64, 127)
        assert segments(store, "users") == [(1, 1)]
        assert await keys_of(core, "users", P1) == ["u1"]
        assert await keys_of(core, "orders", P1, 63) == keys(64, 200)


async def test_all_records_of_a_compacted_era_are_deleted_and_it_still_ends() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await fill(core, P1, 70)
        async with broker(store, "broker-2"):
            await asyncio.sleep(30)
            await core.catalogs.retain("orders", seconds=5, bytes_=None)
            await asyncio.sleep(30)
            assert segments(store) == []
            orders = core.catalog.collection("orders")
            assert (orders.kept_era, orders.gone) == (2, {})  # no range of it is named
            assert (await core.read("orders", RangeId(P1), 70)).ended
            with pytest.raises(RangeRefused, match="deleted by retention"):
                await core.read("orders", RangeId(P1), 69)


@pytest.mark.parametrize("place", [10, 500, -6])
async def test_a_damaged_segment_is_reported_for_its_partition_until_it_is_restored(
    place: int,
) -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await core.catalogs.create("users", parts=1)
        await asyncio.sleep(1)
        await fill(core, P1, 50)
        await fill(core, P1, 20, name="users")
        await asyncio.sleep(20)
        [key] = segment_keys(store)
        whole = store.objects[key]
        damaged = bytearray(whole)
        damaged[place] ^= 1
        store.objects[key] = bytes(damaged)
        with pytest.raises(RangeDamaged, match=r"segments/orders/.* is damaged"):
            await core.read("orders", RangeId(P1), 0)
        assert await keys_of(core, "users", P1) == keys(1, 20)
        store.objects[key] = whole
        assert await keys_of(core, "orders", P1) == keys(1, 50)


async def test_a_partition_is_not_at_its_end_where_all_of_its_records_are_missing() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await core.catalogs.create("users", parts=1)
        await asyncio.sleep(1)
        await fill(core, P1, 10, name="users")
        await fill(core, P1, 130)
        await asyncio.sleep(20)
        for key in [x for x in store.objects if x.startswith(("segments/", "compacted/"))]:
            del store.objects[key]
        async with broker(store, "broker-2", settings=BY_HAND) as other:
            with pytest.raises(RangeDamaged, match="records 1 to 10 are missing"):
                await other.read("users", RangeId(P1), 0)


async def test_an_engine_reads_what_a_run_names_though_no_listing_shows_it_yet() -> None:
    store = LateStore()
    async with broker(store) as core:
        await fill(core, P1, 70)
        await asyncio.sleep(20)
        assert flush_key(1, "broker-1", 1) not in store.objects
        stored = await StoredCollection.open(store, "orders")
        found = await stored.part(RangeId(P1), 0, 70, 1)
        assert isinstance(found, SegmentRows)
        assert (found.first, found.last) == (1, 64)


async def test_a_segment_stays_while_some_of_it_is_kept() -> None:
    store = MemoryStore()
    async with broker(store, settings=BY_HAND) as core:
        await fill(core, P1, 65)
        one = await compactor(core, store)
        row = one._readers.row(core.catalog, 1, "broker-1")
        await one.step()
        for start, left in ((63, [(1, 64)]), (64, [])):
            orders = with_truncations(
                core.catalog.collection("orders"), {RangeId(P1): Truncation(start, 1)}
            )
            deletions = deletions_of(replace(core.catalog, collections=(orders,)), 1)
            await delete_segments(store, deletions, row)
            assert segments(store) == left
        assert segments(store) == []
        assert not runs(store)


async def test_a_run_is_not_named_while_an_object_of_it_is_damaged() -> None:
    store = MemoryStore()
    async with broker(store, settings=BY_HAND) as core:
        one = await compactor(core, store)
        for first in (1, 65):  # the second time, it is said again
            await fill(core, P1, 65)
            await one._readers.row(core.catalog, 1, "broker-1").tail()
            key = flush_key(1, "broker-1", first + 29)
            whole, store.objects[key] = store.objects[key], store.objects[key][:-1]
            with captured_logs("WARNING") as said:
                assert not await one.step()
                assert not await one.step()
            assert [x["event"] for x in said] == ["broker.failed"]
            assert len(runs(store)) == first // 64
            store.objects[key] = whole
            assert await one.step()
            assert segments(store)[-1] == (first, first + 63)


async def test_a_run_is_not_made_of_records_that_do_not_follow_each_other() -> None:
    store = MemoryStore()
    async with broker(store, settings=BY_HAND) as core:
        await fill(core, P1, 65)
        place = Place(1, "broker-1", 30)
        data = store.objects[flush_key(*place)]
        header = decode_header(data, core.cluster.identity, place)
        store.objects[flush_key(*place)] = encode_flush(replace(header, sections=()))
        one = await compactor(core, store)
        assert not await one.step()
        assert not runs(store)


def test_an_era_is_not_closed_by_a_seal_where_an_object_had_been_deleted() -> None:
    row = Row(broker="a", incarnation="i", kept_from=65)
    era = Era(number=1, began_us=0, state="ending", rows=(row,), planned=(row,))
    catalog = Catalog(number=7, identity="c", eras=(era,))
    assert close_and_open(catalog, 1, {"a": 64}, 0) is catalog
    assert close_and_open(catalog, 1, {"a": 65}, 0).number == 8


def test_a_row_is_compacted_by_one_broker_and_by_another_once_that_is_gone() -> None:
    def row(name: str, sealed_at: int | None = None) -> Row:
        return Row(broker=name, incarnation=name, sealed_at=sealed_at)

    old = Era(number=1, began_us=0, state="closed", rows=(row("a", 9), row("b", 9)))
    new = Era(number=2, began_us=0, rows=(row("b"), row("c")))
    catalog = Catalog(number=7, identity="x", eras=(old, new))
    found = {x: [(n, y.broker) for n, y in rows_of(catalog, x, x)] for x in "abc"}
    assert found == {"a": [], "b": [(1, "a"), (1, "b"), (2, "b")], "c": [(2, "c")]}
    assert [n for n, _ in rows_of(catalog, "c", "another incarnation")] == []


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20)), max_size=9),
    st.integers(1, 40),
)
def test_partitions_share_memory_and_each_with_new_records_is_in_one_share(
    found: list[tuple[int, int, int]], most: int
) -> None:
    def end(n: int, last: int, stored: int) -> PartitionEnd:
        return PartitionEnd(
            collection="orders", partition=RangeId(f"{n}"), last=last, stored=stored
        )

    named = [("orders", RangeId(f"{n}")) for n in range(len(found))]
    rows = list(zip(named, found, strict=True))
    before = {k: end(int(k[1]), a, 5 * a) for k, (a, _, _) in rows}
    after = {k: end(int(k[1]), a + b, 5 * (a + b)) for k, (a, b, _) in rows}
    starts = {k: x[2] for k, x in rows}
    made = shares(before, after, starts, most)
    wanted = [k for k, (a, b, gone) in rows if b and a + b > gone]
    assert sorted(y for x in made for y in x) == sorted(wanted)
    for one in made:
        assert len(one) == 1 or sum(5 * found[int(y[1])][1] for y in one) <= most
