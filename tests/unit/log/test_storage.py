"""How much is stored, and which producers are remembered."""

import asyncio

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.catalog.transitions import with_kept_from
from changefeed.log.stores.memory_store import MemoryStore
from tests.support.brokers import columns, fill, first_broker
from tests.support.compacting import broker, segments
from tests.support.watched_store import WatchedStore

pytestmark = pytest.mark.usefixtures("all_in_parquet")

P1, P2 = RangeId("e1.p01.v00-ff"), RangeId("e1.p02.v00-ff")


async def test_ended_ranges_count_what_is_left_of_them_and_their_segments() -> None:
    store = MemoryStore()
    async with broker(store) as core:
        await fill(core, P1, 200)
        await core.catalogs.split("orders")
        await asyncio.sleep(30)
        before = {x.range: x for x in (await core.storage("orders")).ranges}
        assert before[P1].bytes == sum(
            sum(map(len, columns(f"k{n}", at_us=n))) for n in range(1, 201)
        )
        found = await core.storage("orders")
        assert found.segments == len(segments(store)) > 1
        objects = {x: len(y) for x, y in store.objects.items() if x.startswith("segments/")}
        assert found.segment_bytes == sum(objects.values())
        assert [x.bytes for name, x in before.items() if name != P1] == [0, 0]

        await core.catalogs.retain("orders", seconds=None, bytes_=before[P1].bytes // 2)
        await asyncio.sleep(30)
        left = await core.storage("orders")
        after = {x.range: x for x in left.ranges}
        assert 0 < after[P1].bytes < before[P1].bytes
        assert (after[P1].start, segments(store)[0]) == (64, (65, 128))
        assert 0 < left.segments < found.segments


async def keep_from(core: BrokerCore, number: int) -> None:
    """Say that the objects of the first era are gone up to one."""
    await core.catalogs.change(lambda x: with_kept_from(x, {(1, "broker-1"): number}))


async def test_objects_are_counted_without_a_listing_however_many_there_are() -> None:
    store, calls = WatchedStore(), list[tuple[str, str]]()

    async def note(call: str, key: str) -> None:
        calls.append((call, key))

    store.before = note
    async with first_broker(store, parts=2) as core:
        await fill(core, P1, 300)
        await core.catalogs.split("orders")
        await asyncio.sleep(5)
        row = core.catalog.eras[0].rows[0]
        assert row.sealed_at == 301
        sent = [sum(map(len, columns(f"k{n}", at_us=n))) for n in range(1, 301)]
        for kept_from, left in ((1, sent), (65, sent[64:]), (257, sent[256:]), (301, [])):
            await keep_from(core, kept_from)
            calls.clear()
            found = await core.storage("orders")
            assert (found.flushes, found.flush_bytes) == (302 - kept_from, sum(left))
            assert [x for call, x in calls if call == "list"] == ["segments/orders/"]
            assert len([x for call, x in calls if call == "get"]) < 5
