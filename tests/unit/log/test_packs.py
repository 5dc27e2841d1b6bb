"""Runs hold what is small of a partition: few objects, whatever partitions there are."""

import threading

import pytest

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.errors import Damaged
from changefeed.log.format.pack import Place, header_bytes
from changefeed.log.format.runs import decode_run
from changefeed.log.maintenance import run_maker
from changefeed.log.reading.stored_collection import SegmentRows, StoredCollection
from changefeed.log.stores.memory_store import MemoryStore
from tests.support.brokers import batch, fill, keys_of, open_ids, put
from tests.support.compacting import BY_HAND, P1, broker, compactor, delete_flushes

PARTS = 40
FLUSHES = 66


async def fill_all(core: BrokerCore) -> None:
    """Write a record of each partition in each object."""
    await core.catalogs.create("wide", parts=PARTS)
    await core.catalogs.refresh()
    await core.look_for("wide")
    names = open_ids(core, "wide")
    assert len(names) == PARTS
    for n in range(1, FLUSHES + 1):
        await put(core, "wide", *(batch(x, f"k{n}", at_us=n) for x in names))


def compacted(store: MemoryStore) -> list[str]:
    return [x for x in store.objects if x.startswith(("compacted/", "segments/"))]


@pytest.mark.parametrize(
    ("parquet", "large", "objects"), [(True, 10**6, 1), (False, 1, 1), (True, 1, 2)]
)
async def test_many_small_partitions_become_one_object_or_share_a_segment(
    monkeypatch: pytest.MonkeyPatch, *, parquet: bool, large: int, objects: int
) -> None:
    imports_in = list[threading.Thread]()

    def has_parquet() -> bool:
        imports_in.append(threading.current_thread())
        return parquet

    monkeypatch.setattr(run_maker, "has_parquet", has_parquet)
    monkeypatch.setattr(run_maker, "LARGE", large)
    store = MemoryStore()
    async with broker(store, settings=BY_HAND) as core:
        await fill_all(core)
        assert await (await compactor(core, store)).step()
        assert len(compacted(store)) == objects
        assert bool(imports_in) == (large == 1)
        assert threading.main_thread() not in imports_in  # it would stop the loop
        last = core.readers.row(core.catalog, 1, "broker-1").runs
        assert await last.look() == 64
        names = open_ids(core, "wide")[:3]
        await delete_flushes(core, store, 64)
        async with broker(store, "broker-2", settings=BY_HAND) as other:
            for name in names:
                assert len(await keys_of(other, "wide", name)) == FLUSHES
                before = await other.sequence_before("wide", RangeId(name), 40)
                assert before == 39
                stored = await StoredCollection.open(store, "wide")  # as engines read it
                found = await stored.part(RangeId(name), 0, FLUSHES, 10**6)
                whole = found if isinstance(found, SegmentRows) else found[-1]
                assert whole.last == 64


@pytest.mark.parametrize("place", [20, -3])
async def test_a_run_that_is_damaged_stops_what_it_holds_until_it_is_restored(
    place: int,
) -> None:
    store = MemoryStore()
    async with broker(store, settings=BY_HAND) as core:
        await fill(core, P1, 65)
        assert await (await compactor(core, store)).step()
        [run] = compacted(store)
        sound = store.objects[run]
        assert header_bytes(sound) < len(sound), "it holds records"
        decode_run(sound, core.cluster.identity, Place(1, "broker-1", 1))
        hurt = bytearray(sound)
        hurt[place] ^= 1
        store.objects[run] = bytes(hurt)
        await delete_flushes(core, store, 64)
        async with broker(store, "broker-2", settings=BY_HAND) as other:
            with pytest.raises((RangeDamaged, Damaged)):
                await other.read("orders", RangeId(P1), 0)
            store.objects[run] = sound
            assert len(await keys_of(other, "orders", P1)) == 65
