"""What is in segments of a cluster's store, as planners and tasks read it; without Spark."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from changefeed.brokers.core import BrokerCore
from changefeed.feeds.brokers.flush import TABLE_EVERY
from changefeed.feeds.brokers.names import flush_key, segment_key
from changefeed.feeds.brokers.protocol import Batch
from changefeed.feeds.brokers.transitions import with_kept_from
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.eventlog.block_format import lay_out
from changefeed.feeds.eventlog.records import Record, encode_record
from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.backlog import planned
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.reader import Slice
from changefeed.pipeline.source.record_batches import EVERYTHING, Envelope
from changefeed.pipeline.source.spark import slices_between
from changefeed.pipeline.source.stored_reader import StoredAccess
from tests.support.brokers import first_broker, put
from tests.support.stored_segments import segment_of
from tests.support.watched_store import WatchedStore

from .test_collection_reader import at, read, reading

WHOLE, OTHER = RangeId("e1.p01.v00-ff"), RangeId("e1.p02.v00-ff")
COUNT = TABLE_EVERY + 10
EVERY = Envelope(columns=EVERYTHING)


class Store(WatchedStore):
    """The objects of a broker, some of which become segments."""

    cluster = ""

    def segment(self, first: int, last: int) -> None:
        of = range(first, last + 1)
        key, data = segment_of(self.objects, self.cluster, "orders", WHOLE, of=of)
        self.objects[key] = data

    def without_flushes(self) -> None:
        for n in range(1, TABLE_EVERY + 1):
            del self.objects[flush_key(1, "broker-1", n)]


async def keep_from(core: BrokerCore, number: int) -> None:
    kept = {(1, "broker-1"): number}
    await core.catalogs.change(lambda x: with_kept_from(x, kept))


def record(n: int) -> Record:
    body = b"\xff" if n == 7 else b'{"n":%d}' % n
    return Record(key=f"k{n % 5}", id=f"i{n}" if n % 3 else None, body=body)


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[BrokerCore, Store]]:
    """A broker that has written ``COUNT`` objects with a record each, a second apart."""
    store = Store()
    async with first_broker(store, parts=2) as core:
        for n in range(1, COUNT + 1):
            layout = lay_out([encode_record(record(n), n * 1_000_000)])
            await put(core, "orders", Batch(partition=WHOLE, count=1, columns=layout))
        store.cluster = core.catalog.identity
        yield core, store


def rows(access: StoredAccess) -> list[dict[str, Any]]:
    slice_ = Slice(range_id=WHOLE, start=at(access, 0), end=at(access, COUNT))
    return [x for _, y in access.read(slice_) for x in EVERY.batch(WHOLE, y, 3).to_pylist()]


async def test_records_are_found_in_segments_and_what_is_in_none_in_flushes() -> None:
    async with filled() as (core, store):
        with reading(store) as access:
            before = rows(access)
        store.segment(1, 30)
        store.segment(20, 50)
        store.segment(51, TABLE_EVERY)
        await keep_from(core, TABLE_EVERY + 1)
        store.without_flushes()
        with reading(store) as access:
            after = rows(access)
            assert after == before
            assert [x["sequence"] for x in after] == [*range(1, COUNT + 1)]
            assert after[6]["body"] == r"\xff"
            for begin, end in ((0, 1), (14, 45), (29, 30), (60, 70), (66, COUNT)):
                assert read(access, begin, end) == [*range(begin + 1, end + 1)]


async def test_flushes_that_become_a_segment_while_they_are_read_are_read_from_it() -> None:
    async with filled() as (core, store):
        await keep_from(core, TABLE_EVERY + 1)

        with reading(store) as access:
            assert read(access, 70, 71) == [71]  # it has listed that there is no segment
            store.segment(1, TABLE_EVERY)
            store.without_flushes()
            assert read(access, 3, COUNT) == [*range(4, COUNT + 1)]


async def test_a_segment_that_gives_way_to_a_larger_one_while_it_is_read_is_no_loss() -> None:
    async with filled() as (_, store):
        small = segment_key("orders", WHOLE, 1, 20)

        async def replace(_: str, key: str) -> None:
            if key == small and small in store.objects:
                store.segment(1, 40)
                del store.objects[small]

        store.segment(1, 20)
        store.before = replace
        with reading(store) as access:
            assert read(access, 2, COUNT) == [*range(3, COUNT + 1)]
        assert small not in store.objects


async def test_a_segment_of_other_records_is_not_taken_for_what_its_name_says() -> None:
    async with filled() as (_, store):
        store.segment(1, 10)
        data = store.objects.pop(segment_key("orders", WHOLE, 1, 10))
        store.objects[segment_key("orders", WHOLE, 11, 20)] = data
        with reading(store) as access, pytest.raises(RangeDamaged, match="other records"):
            read(access, 0, 20)


async def test_spark_is_left_the_files_of_text_and_the_source_what_lies_between(
    tmp_path: Path,
) -> None:
    async with filled() as (_, store):
        store.segment(1, 10)  # has a body that is no text
        store.segment(21, 40)
        store.segment(41, 50)
        for key, data in store.objects.items():
            path = tmp_path / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    feed = f"file://{tmp_path}#orders"
    with closing(open_access(feed)) as access:
        assert isinstance(access, StoredAccess)
        assert access.sealed() == {WHOLE: at(access, 50)}
        mark = access.starts([WHOLE], "beginning")[WHOLE].partition("/")[0]
        options = Options.of(
            {"feed": feed, "endingAt": f'{{"{WHOLE}":["{mark}/45",false,0]}}', "ranges": WHOLE}
        )
        plan = planned(access, slices_between(access, options))
    assert [(x.part.after, x.part.end, x.part.is_whole) for x in plan.scans] == [
        (20, 40, True),
        (40, 45, False),
    ]
    assert [(x.start, x.end) for x in plan.left] == [(f"{mark}/0", f"{mark}/20")]
