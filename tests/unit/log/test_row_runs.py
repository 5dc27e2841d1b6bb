"""The runs of a row, while several look for them at once and others delete them."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.names import compacted_key
from changefeed.log.format.flush import TABLE_EVERY, PartitionEnd
from changefeed.log.format.pack import encode_pack
from changefeed.log.format.runs import Run
from changefeed.log.format.segment_file import RowGroup, Segment, Slice
from changefeed.log.rows.row_runs import RowRuns
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import Listed
from tests.support.watched_store import Call, LateStore, WatchedStore

P1 = RangeId("e1.p01.v00-ff")
KEY = ("orders", P1)
RUN = Run(
    cluster="c",
    era=1,
    broker="b",
    first=1,
    last=1,
    written_us=1,
    final=False,
    ends=(),
    segments=(),
)


class SlowStore(MemoryStore):
    """Answers a listing as it was when asked, and everything else a while later."""

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        await asyncio.sleep(1)
        return await super().get(key, start, end)

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        found = await super().list(prefix, after)
        await asyncio.sleep(5)
        return found


def row_of(store: MemoryStore, runs: range, objects: int = 4) -> RowRuns:
    """Make runs of some objects each, with a record each; none begins at object 1."""
    for n in runs:
        end = PartitionEnd(collection="orders", partition=P1, last=n, stored=n)
        rows = Slice(range_id=P1, first=n, count=1, latest_us=4)
        segment = Segment(
            collection="orders",
            key="k",
            groups=(RowGroup(end=10, crc=1, slices=(rows,)),),
            size=11,
            is_text=True,
            tail_crc=1,
        )
        first, last = objects * n + 1, objects * n + objects
        run = replace(RUN, first=first, last=last, ends=(end,), segments=(segment,))
        store.objects[compacted_key(1, "b", run.first)] = encode_pack(run)
    return RowRuns(store, "c", 1, "b")


async def first_of(row: RowRuns, sequence: int) -> int | None:
    found = await row.holding(KEY, sequence - 1)
    return found[0].first if found else None


async def test_runs_that_are_deleted_while_several_search_hide_none_that_are_kept() -> None:
    store = SlowStore()
    row = row_of(store, range(1, 30))
    await row.look(again=True)
    fresh = RowRuns(store, "c", 1, "b")
    await fresh.look(again=True)
    for n in range(1, 20):
        del store.objects[compacted_key(1, "b", 4 * n + 1)]
    found = await asyncio.gather(*(first_of(fresh, n) for n in range(20, 30)))
    assert found == list(range(20, 30))
    assert fresh.starts == tuple(4 * n + 1 for n in range(20, 30))


@pytest.mark.parametrize("objects", [TABLE_EVERY, 64 * TABLE_EVERY])
async def test_runs_that_no_listing_shows_yet_are_found_where_objects_are_deleted(
    objects: int,
) -> None:
    row = row_of(LateStore(), range(3, 9), objects)
    row.kept_from = 8 * objects + 1
    await row.look()
    assert [await first_of(row, n) for n in range(3, 9)] == [*range(3, 9)]


async def test_a_run_is_found_that_begins_where_all_before_it_was_deleted() -> None:
    store = MemoryStore()
    row = row_of(store, range(0))
    row.kept_from = 3 * TABLE_EVERY + 1
    assert await row.look() == 0
    row_of(store, range(3, 6), TABLE_EVERY)
    assert await row.look() == 6 * TABLE_EVERY


async def test_the_newest_of_a_thousand_runs_is_known_without_asking_for_each() -> None:
    store, asked = WatchedStore(), list[Call]()

    async def note(call: Call, _key: str) -> None:
        asked.append(call)

    row = row_of(store, range(1_000))
    store.before = note
    assert await row.look() == 4_000
    assert asked == ["list", "get", "get"]
