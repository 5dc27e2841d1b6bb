"""How much is stored, and which producers are remembered."""

import asyncio

from changefeed.brokers.operations import create_collection, move, retain, split
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from changefeed.feeds.feed import RangeId
from tests.support.brokers import batch, columns, first_broker, put
from tests.unit.brokers.test_compaction import broker, fill, segments

P1, P2 = RangeId("e1.p01.v00-ff"), RangeId("e1.p02.v00-ff")


async def test_open_ranges_count_what_was_sent_and_by_whom() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=2) as core:
        await create_collection(core.catalogs, "others", parts=1)
        await put(core, "orders", batch(P1, "a", "b"), batch(P2, "c"))
        await asyncio.sleep(60)
        await put(core, "orders", batch(P1, "d", producer="q"))
        found = await core.storage("orders")
        size = {x.range: x.bytes for x in found.ranges}
        assert size == {
            P1: sum(map(len, (*columns("a", "b"), *columns("d")))),
            P2: sum(map(len, columns("c"))),
        }
        assert {x.range: x.producers for x in found.ranges} == {P1: 2, P2: 1}
        assert [(x.id, x.ranges, x.records) for x in found.producers] == [
            ("q", 1, 1),
            ("p", 2, 3),
        ]
        objects = [len(x) for key, x in store.objects.items() if key.startswith("wal/")]
        assert objects == [found.flush_bytes - objects[1], objects[1]]
        assert found.flushes == 2
        other = await core.storage("others")
        assert [x.bytes for x in other.ranges] == [0]
        assert (other.producers, other.flushes) == ((), 2)


async def test_ended_ranges_count_what_is_left_of_them_and_their_segments() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await fill(core, 200)
        await split(core.catalogs, "orders")
        await asyncio.sleep(30)
        before = {x.range: x for x in (await core.storage("orders")).ranges}
        assert before[P1].bytes == sum(
            sum(map(len, columns(f"k{n}", at_us=n))) for n in range(1, 201)
        )
        assert before[P1].segments == len(segments(store)) > 1
        objects = {x: len(y) for x, y in store.objects.items() if x.startswith("segments/")}
        assert before[P1].segment_bytes == sum(objects.values())
        assert [x.bytes for name, x in before.items() if name != P1] == [0, 0]

        await retain(core.catalogs, "orders", seconds=None, bytes_=before[P1].bytes // 2)
        await move(core.catalogs, "orders", P1, to="broker-1")
        await asyncio.sleep(30)
        after = {x.range: x for x in (await core.storage("orders")).ranges}
        assert 0 < after[P1].bytes < before[P1].bytes
        assert 0 < after[P1].segments < before[P1].segments
        assert (after[P1].moved_to, before[P1].moved_to) == ("broker-1", "")
