"""What is deleted of a collection that does not keep all."""

import asyncio
import dataclasses
from datetime import UTC, datetime
from functools import partial

import pytest
from msgspec import structs

from changefeed.feeds.errors import FeedRefused, RangeRefused
from changefeed.feeds.feed import FeedRange, RangeEnded, RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.run_core import open_core
from changefeed.log.catalog.catalog import Truncation
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.format.flush import Ends
from changefeed.log.ids import era_in, position
from changefeed.log.maintenance.retention import if_as_it_was, with_truncations
from changefeed.log.reading.collection_feed import CollectionFeed
from changefeed.log.reading.stored_collection import StoredCollection
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.stores.memory_store import MemoryStore
from tests.support.brokers import (
    QUICK,
    batch,
    fill,
    first_broker,
    in_era,
    keys_of,
    open_ids,
    put,
    virtual_us,
)
from tests.support.watched_store import WatchedStore

P1, P2 = "e1.p01.v00-ff", "e1.p02.v00-ff"


KEEPING = dataclasses.replace(QUICK, retention_interval=5.0, delete_grace=10.0)


async def test_what_is_older_than_a_collection_keeps_is_deleted_and_readers_learn_it() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=1, settings=KEEPING) as core:
        await fill(core, P1, 200, pause=1)
        await core.catalogs.retain("orders", seconds=100, bytes_=None)
        await asyncio.sleep(70)
        assert await start_of(core) == 128  # objects with tables are 1, 65, 129, 193
        with pytest.raises(RangeRefused, match="records 1 to 128 of range"):
            await core.read("orders", RangeId(P1), 0)
        assert (await keys_of(core, "orders", P1, 128))[0] == "k129"
        rows = [x for x in store.objects if x.startswith("wal/")]
        assert min(rows).endswith("000000000129")
        async with open_core(store, "broker-2", settings=KEEPING, wall_us=virtual_us) as other:
            assert (await keys_of(other, "orders", P1, 130))[0] == "k131"
            # This one has nothing of it in memory.
            with pytest.raises(RangeRefused, match="deleted by retention"):
                await other.read("orders", RangeId(P1), 0)


async def test_a_row_that_grows_while_its_end_is_read_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with first_broker(MemoryStore(), parts=1, settings=KEEPING) as core:
        await fill(core, P1, 70, pause=1)
        await core.catalogs.retain("orders", seconds=1, bytes_=None)
        await asyncio.sleep(30)
        assert await start_of(core) == 64
        late, ends = ["late"], RowReader.ends

        async def ends_once_it_has_grown(row: RowReader) -> Ends:
            if late:
                await put(core, "orders", batch(P1, late.pop()))
            return await ends(row)

        monkeypatch.setattr(RowReader, "ends", ends_once_it_has_grown)
        (block,) = (await core.read("orders", RangeId(P1), 70)).blocks
        assert (block.first, block.last, late) == (71, 71, [])


@pytest.mark.parametrize("seconds", [0, 0.5, -1, 1e308, float("inf"), float("nan")])
async def test_what_is_no_time_to_keep_records_for_is_refused(seconds: float) -> None:
    async with first_broker(MemoryStore(), parts=1) as core:
        number = core.catalog.number
        with pytest.raises(FeedRefused, match="kept for 1 to"):
            await core.catalogs.retain("orders", seconds=seconds, bytes_=None)
        assert core.catalog.number == number


async def test_a_catalog_that_keeps_records_for_longer_than_there_is_time_deletes_none() -> (
    None
):
    async with first_broker(MemoryStore(), parts=1, settings=KEEPING) as core:
        await put(core, "orders", batch(P1, "a"))

        await core.catalogs.change_collection(
            "orders", lambda x: structs.replace(x, retain_seconds=1e308)
        )
        await asyncio.sleep(60)
        assert not core.failing
        assert await keys_of(core, "orders", P1) == ["a"]


async def test_an_object_is_kept_while_one_of_its_collections_keeps_it() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=1, settings=KEEPING) as core:
        await core.catalogs.create("users", parts=1)
        await asyncio.sleep(1)
        await put(core, "users", batch(P1, "u"))
        await fill(core, P1, 100, pause=1)
        await core.catalogs.retain("orders", seconds=20, bytes_=None)
        await asyncio.sleep(60)
        assert await start_of(core) > 0
        assert await keys_of(core, "users", P1) == ["u"]
        assert "wal/00000001/broker-1/000000000001" in store.objects


async def test_what_two_masters_cut_by_one_catalog_is_cut_by_one_of_them() -> None:
    async with first_broker(MemoryStore(), parts=2) as core:
        await put(core, "orders", batch(P1, "a", "b"), batch(P2, "c", "d"))
        orders = core.catalog.collection("orders")
        one = with_truncations(orders, {RangeId(P1): Truncation(1, 9)})
        other = with_truncations(orders, {RangeId(P2): Truncation(1, 9)})
        for cut in (one, other):
            await core.catalogs.change_collection("orders", partial(if_as_it_was, orders, cut))
        assert core.catalog.collection("orders").gone == one.gone


async def test_what_is_to_be_kept_for_ever_by_now_is_not_cut_as_was_asked_before() -> None:
    store = WatchedStore()
    by_another = list[str]()

    async def keep_all(call: str, key: str) -> None:
        if call == "replace" and key == "collections/orders" and not by_another:
            by_another.append(key)
            catalogs = CatalogStore(store, await open_cluster(store))
            await catalogs.retain("orders", seconds=None, bytes_=None)

    async with first_broker(store, parts=1, settings=KEEPING) as core:
        await fill(core, P1, 200, pause=1)
        await core.catalogs.retain("orders", seconds=40, bytes_=None)
        store.before = keep_all
        await asyncio.sleep(30)
        assert by_another
        assert await start_of(core) == 0


class _Machine(MemoryStore):
    """A directory: its times are those of the machine, whose only clock may jump."""

    ahead = 0.0

    async def written_at(self, key: str) -> float | None:
        return self.stamps.get(key)

    def __init__(self) -> None:
        super().__init__()
        self.stamps: dict[str, float] = {}

    def _write(self, key: str, data: bytes) -> None:
        super()._write(key, data)
        self.stamps[key] = self.times[key] + self.ahead

    def wall_us(self) -> int:
        return virtual_us() + int(self.ahead * 1e6)


YEAR = 365 * 86400.0


async def start_of(core: BrokerCore) -> int:
    return (await core.end("orders", RangeId(P1))).start


async def test_a_master_whose_clock_is_ahead_of_the_stores_deletes_nothing_for_that() -> None:
    ahead = 0.0
    async with first_broker(
        MemoryStore(),
        parts=1,
        settings=KEEPING,
        wall_us=lambda: virtual_us() + int(ahead * 1e6),
    ) as core:
        await core.catalogs.retain("orders", seconds=100, bytes_=None)
        await fill(core, P1, 80, pause=1)
        ahead = YEAR
        await asyncio.sleep(60)
        assert await start_of(core) == 0
        await asyncio.sleep(60)
        assert await start_of(core) == 64  # not later than it should, either


async def test_a_jump_of_the_only_clock_deletes_ten_times_what_time_has_passed_at_most() -> (
    None
):
    store = _Machine()
    async with first_broker(store, parts=1, settings=KEEPING, wall_us=store.wall_us) as core:
        await core.catalogs.retain("orders", seconds=100, bytes_=None)
        await fill(core, P1, 200, pause=1)
        assert await start_of(core) == 64
        store.ahead = YEAR
        await asyncio.sleep(6)  # one look or two: a minute's records at the most
        assert await start_of(core) == 64
        await asyncio.sleep(15)  # the grace of that
        assert await start_of(core) == 128
        await asyncio.sleep(60)
        assert await start_of(core) == 192  # a table is there, too


async def test_masters_that_live_for_a_moment_go_on_where_the_one_before_has_come() -> None:
    store = _Machine()
    quick = dataclasses.replace(KEEPING, retention_interval=2.0, delete_grace=1.0)
    async with first_broker(store, parts=1, settings=quick, wall_us=store.wall_us) as core:
        await fill(core, P1, 200, pause=1)
        await core.catalogs.retain("orders", seconds=100, bytes_=None)
    store.ahead = YEAR
    starts = []
    for _ in range(5):  # each moves the border by a minute at the most
        async with open_core(store, "broker-1", settings=quick, wall_us=store.wall_us) as core:
            await core.wait_until_writing()
            await asyncio.sleep(5)
            starts.append(await start_of(core))
    assert starts[0] == 0
    assert starts[-1] >= 64


@pytest.mark.parametrize(("seconds", "ahead"), [(100, YEAR), (5, 0.0)])
async def test_a_cut_is_taken_back_where_a_clock_is_set_right_or_people_say_so_in_time(
    seconds: float, ahead: float
) -> None:
    store = _Machine()
    async with first_broker(store, parts=1, settings=KEEPING, wall_us=store.wall_us) as core:
        await fill(core, P1, 80, pause=1)
        await core.catalogs.retain("orders", seconds=seconds, bytes_=None)
        store.ahead = ahead
        await asyncio.sleep(16)
        assert core.catalog.collection("orders").cut
        store.ahead = 0.0
        if not ahead:
            await core.catalogs.retain("orders", seconds=None, bytes_=None)
        await asyncio.sleep(60)
        assert await keys_of(core, "orders", P1) == [f"k{n}" for n in range(1, 81)]


@pytest.mark.parametrize(
    ("number", "kept_era", "gone"), [(65, 4, set[int]()), (67, 1, {2})], ids=["table", "seal"]
)
async def test_a_row_with_a_damaged_object_is_kept_while_later_ones_are_deleted(
    number: int, kept_era: int, gone: set[int]
) -> None:
    store = MemoryStore()
    async with first_broker(store, parts=1) as core:
        for era in (1, 2):
            for n in range(66):
                await put(core, "orders", batch(open_ids(core, "orders")[0], f"k{n}"))
            await core.catalogs.split("orders")
            await in_era(core, era + 1)
    damaged = f"wal/00000001/broker-1/{number:012}"
    store.objects[damaged] = b"damaged"
    async with open_core(store, "broker-1", settings=KEEPING, wall_us=virtual_us) as core:
        await in_era(core, 4)
        await core.catalogs.retain("orders", seconds=None, bytes_=0)
        await asyncio.sleep(60)
        orders = core.catalog.collection("orders")
        assert (orders.kept_era, {era_in(x) for x in orders.gone}) == (kept_era, gone)
    assert damaged in store.objects
    assert "wal/00000002/broker-1/000000000001" not in store.objects


async def test_an_era_that_is_gone_is_not_listed_and_ends_with_a_damaged_end_too() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=1, settings=KEEPING) as core:
        await fill(core, P1, 66)
        await core.catalogs.split("orders")
        await in_era(core, 2)
        await core.catalogs.retain("orders", seconds=None, bytes_=0)
        await asyncio.sleep(60)
        assert core.catalog.collection("orders").kept_era == 2
    gone = FeedRange(id=RangeId(P1))
    for last in ("66", "999,999,999,999,999,999"):
        source = await StoredCollection.open(store, "orders")
        feed = CollectionFeed(source, await source.routes(), wait=0.0)
        assert {era_in(x.id) for x in await feed.ranges()} == {2}
        for at in (datetime(2026, 1, 1, tzinfo=UTC), "beginning"):
            begin = await feed.start(gone, at)
            with pytest.raises(RangeEnded) as ended:
                await feed.read(gone, begin, 10)
            assert [x.range for x in ended.value.children] == await feed.ranges()
        with pytest.raises(RangeRefused, match=f"records 66 to {last} .* deleted by retention"):
            await feed.read(gone, position(feed.identity, 65), 10)
        assert not (await source._partitions.result("orders", gone.id, 65, ())).ended
        for key in [x for x in store.objects if x.startswith("wal/00000001/")]:
            store.objects[key] = b"damaged"


async def test_a_damaged_run_keeps_what_lies_in_its_row_and_in_no_other() -> None:
    store, compacting = MemoryStore(), dataclasses.replace(QUICK, compaction=True)
    async with first_broker(store, parts=1, settings=compacting) as core:
        for era in (1, 2):
            await put(core, "orders", batch(open_ids(core, "orders")[0], "a"))
            await core.catalogs.split("orders")
            await in_era(core, era + 1)
        await asyncio.sleep(15)
    first, second = (f"wal/0000000{era}/broker-1/000000000001" for era in (1, 2))
    assert {first, second} <= store.objects.keys()
    store.objects[first.replace("wal", "compacted")] = b"damaged"
    keeping = dataclasses.replace(KEEPING, compaction=True)
    async with open_core(store, "broker-1", settings=keeping, wall_us=virtual_us):
        await asyncio.sleep(60)
    assert [x in store.objects for x in (first, second)] == [True, False]


async def test_a_writer_whose_clock_is_behind_writes_nothing_that_is_old() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=2, settings=KEEPING) as core:
        await core.catalogs.retain("orders", seconds=3600, bytes_=None)
        async with open_core(store, "broker-2", settings=KEEPING, wall_us=lambda: 0) as behind:
            await in_era(behind, 2)
            began = core.catalog.era_numbered(2).began_us
            assert began > 0
            await put(behind, "orders", batch("e2.p02.v00-ff", "a"))
            header = await behind.readers.row(core.catalog, 2, "broker-2").there(1)
            assert header.written_us == began
