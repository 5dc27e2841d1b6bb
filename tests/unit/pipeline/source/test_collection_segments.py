"""What is in segments of a cluster's store, as planners and tasks read it; without Spark."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.format.block_format import lay_out
from changefeed.log.format.flush import TABLE_EVERY
from changefeed.log.protocol.messages import Batch
from changefeed.log.records import Record, encode_record
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.backlog import planned
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.reader import Slice
from changefeed.pipeline.source.record_batches import EVERYTHING, Envelope
from changefeed.pipeline.source.spark import slices_between
from changefeed.pipeline.source.stored_reader import StoredAccess
from tests.support.brokers import first_broker, put
from tests.support.compacting import compactor, delete_flushes, segment_keys

from .test_collection_reader import at, read, reading

pytestmark = pytest.mark.usefixtures("all_in_parquet")

WHOLE, OTHER = RangeId("e1.p01.v00-ff"), RangeId("e1.p02.v00-ff")
COMPACTED = 2 * TABLE_EVERY
COUNT = COMPACTED + 10
EVERY = Envelope(columns=EVERYTHING)


def record(n: int) -> Record:
    body = b"\xff" if n == 7 else b'{"n":%d}' % n
    return Record(key=f"k{n % 5}", id=f"i{n}" if n % 3 else None, body=body)


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[BrokerCore, MemoryStore]]:
    """A broker that has written ``COUNT`` objects, with a record of each of two ranges."""
    store = MemoryStore()
    async with first_broker(store, parts=2) as core:
        for n in range(1, COUNT + 1):
            layout = lay_out([encode_record(record(n), n * 1_000_000)])
            batches = [Batch(partition=x, count=1, columns=layout) for x in (WHOLE, OTHER)]
            await put(core, "orders", *batches)
        yield core, store


async def compact(core: BrokerCore, store: MemoryStore) -> None:
    """Make two runs, with a segment each, and delete the objects that became them."""
    assert await (await compactor(core, store)).step()
    await delete_flushes(core, store, COMPACTED)


def rows(access: StoredAccess) -> list[dict[str, Any]]:
    slice_ = Slice(range_id=WHOLE, start=at(access, 0), end=at(access, COUNT))
    return [x for _, y in access.read(slice_) for x in EVERY.batch(WHOLE, y, 3).to_pylist()]


async def test_records_are_found_in_segments_and_what_is_in_none_in_flushes() -> None:
    async with filled() as (core, store):
        with reading(store) as access:
            before = rows(access)
        await compact(core, store)
        assert len(segment_keys(store)) == 2
        with reading(store) as access:
            after = rows(access)
            assert after == before
            assert [x["sequence"] for x in after] == [*range(1, COUNT + 1)]
            assert after[6]["body"] == r"\xff"
            for begin, end in ((0, 1), (14, 45), (60, 70), (127, 128), (129, COUNT)):
                assert read(access, begin, end) == [*range(begin + 1, end + 1)]


async def test_flushes_that_become_a_segment_while_they_are_read_are_read_from_it() -> None:
    async with filled() as (core, store):
        with reading(store) as access:
            assert read(access, 130, 131) == [131]  # it knows of no run
            await compact(core, store)
            assert read(access, 3, COUNT) == [*range(4, COUNT + 1)]


@pytest.mark.parametrize("place", [10, -6])
async def test_a_segment_of_other_bytes_is_not_taken_for_what_was_written(place: int) -> None:
    async with filled() as (core, store):
        await compact(core, store)
        key = segment_keys(store)[0]
        hurt = bytearray(store.objects[key])
        hurt[place] ^= 1
        store.objects[key] = bytes(hurt)
        with (
            reading(store) as access,
            pytest.raises(RangeDamaged, match="not what was written"),
        ):
            read(access, 0, 20)


async def test_a_segment_that_is_gone_is_looked_for_again_and_is_damage_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with filled() as (core, store):
        await compact(core, store)
        back = {(key := segment_keys(store)[1]): store.objects.pop(key)}
        with reading(store) as access:
            whole = Slice(range_id=WHOLE, start=at(access, 0), end=at(access, COUNT))
            with pytest.raises(RangeDamaged, match="Restore"):
                read(access, 0, COUNT)
            with pytest.raises(RangeDamaged, match="Restore"):
                access.split(whole)
            monkeypatch.setattr(access, "_look_again", lambda _: store.objects.update(back))
            assert read(access, 0, COUNT) == [*range(1, COUNT + 1)]
            del store.objects[key]
            assert [str(x.path) for x in access.split(whole)[0]] == [key]


async def test_spark_is_left_the_files_of_text_and_the_source_what_lies_between(
    tmp_path: Path,
) -> None:
    async with filled() as (core, store):
        await compact(core, store)
        for key, data in store.objects.items():
            path = tmp_path / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    feed = f"file://{tmp_path}#orders"
    with closing(open_access(feed)) as access:
        assert isinstance(access, StoredAccess)
        assert access.sealed() == {x: at(access, COMPACTED) for x in (WHOLE, OTHER)}
        mark = access.starts([WHOLE], "beginning")[WHOLE].partition("/")[0]
        options = Options.of(
            {"feed": feed, "endingAt": f'{{"{WHOLE}":["{mark}/100",false,0]}}', "ranges": WHOLE}
        )
        plan = planned(access, slices_between(access, options))
    [scan] = plan.scans  # the other file has a body that is no text
    assert scan.part.path == tmp_path / segment_keys(store)[1]
    assert (scan.part.range_id, scan.part.after, scan.part.end) == (WHOLE, TABLE_EVERY, 100)
    assert scan.part.records == 2 * TABLE_EVERY
    assert [(x.start, x.end) for x in plan.left] == [(f"{mark}/0", f"{mark}/{TABLE_EVERY}")]
