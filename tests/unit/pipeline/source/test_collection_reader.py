"""Collections of a cluster as planners and tasks see them; without Spark and brokers' HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from typing import Any

import pytest

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeDamaged, RangeRefused
from changefeed.feeds.feed import Position, RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.format.flush import TABLE_EVERY
from changefeed.log.protocol.messages import Block
from changefeed.log.reading.stored_collection import StoredCollection
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import ObjectStore
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.collection_reader import Part, columns_of
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.planning import first_offset, next_offset, plan_slices
from changefeed.pipeline.source.reader import Slice
from changefeed.pipeline.source.stored_reader import StoredAccess
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, UserError
from tests.support.brokers import batch, columns, first_broker, in_era, put
from tests.support.pipeline_feeds import drained, names
from tests.support.watched_store import WatchedStore

WHOLE, OTHER = RangeId("e1.p01.v00-ff"), RangeId("e1.p02.v00-ff")
LOW, HIGH, ASIDE = (RangeId(f"e2.{x}") for x in ("p01.v00-7f", "p01.v80-ff", "p02.v00-ff"))


@contextmanager
def reading(store: ObjectStore, *only: RangeId, name: str = "orders") -> Iterator[StoredAccess]:
    @asynccontextmanager
    async def opening() -> AsyncIterator[StoredCollection]:
        yield await StoredCollection.open(store, name)

    access = StoredAccess(opening, only=only, patience=0.3, behind=0.0)
    try:
        yield access
    finally:
        access.close()


async def fill(core: BrokerCore, partition: str, flushes: int, *, at_us: int = 1) -> None:
    """Write so many objects with one record each."""
    for _ in range(flushes):
        await put(core, "orders", batch(partition, "k", at_us=at_us))


def read(access: StoredAccess, begin: int, end: int, name: RangeId = WHOLE) -> list[int]:
    slice_ = Slice(range_id=name, start=at(access, begin), end=at(access, end))
    return [x for _, x in names(access, slice_)]


def at(access: StoredAccess, sequence: int) -> Position:
    return Position(f"{access.log[:8]}/{sequence}")


async def test_every_record_of_every_era_is_read_once_and_children_after_their_parents() -> (
    None
):
    store = MemoryStore()
    async with first_broker(store, parts=2) as core:
        await fill(core, WHOLE, 3)
        await fill(core, OTHER, 2)
        await core.catalogs.split("orders", WHOLE)
        await in_era(core, 2)
        await fill(core, LOW, 2)
        await fill(core, ASIDE, 1)
        await core.catalogs.merge("orders", LOW)
        await in_era(core, 3)
        await fill(core, "e3.p01.v00-ff", 1)
        with reading(store) as access:
            end, batches = drained(access, first_offset(access, "beginning"))
            assert {x: m.generation for x, m in end.marks.items()} == {
                "e3.p01.v00-ff": 2,
                "e3.p02.v00-ff": 2,
            }
    assert [sorted(x) for x in batches] == [
        [(WHOLE, 1), (WHOLE, 2), (WHOLE, 3), (OTHER, 1), (OTHER, 2)],
        [(LOW, 1), (LOW, 2), (ASIDE, 1)],
        [("e3.p01.v00-ff", 1)],
    ]


async def test_only_named_ranges_are_read_with_what_descends_from_them() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=2) as core:
        await fill(core, WHOLE, 1)
        await fill(core, OTHER, 1)
        await core.catalogs.split("orders", WHOLE)
        await in_era(core, 2)
        await fill(core, HIGH, 1)
        await fill(core, ASIDE, 1)
        with reading(store, WHOLE) as access:
            _, batches = drained(access, first_offset(access, "beginning"))
    assert [x for y in batches for x in y] == [(WHOLE, 1), (HIGH, 1)]


async def test_positions_of_another_cluster_and_beyond_the_end_are_refused() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=2) as core:
        await fill(core, WHOLE, 2)
        refused = (UserError, FeedRefused)
        with reading(store) as access:
            for text, message in (("0123abcd/1", "another log"), ("lsn-5", "not a position")):
                offset = Offset(marks={WHOLE: Mark(position=Position(text))})
                with pytest.raises(refused, match=message), query_advice():
                    next_offset(access, offset)
            beyond = Offset(marks={WHOLE: Mark(position=at(access, 3))})
            with pytest.raises(FeedRefused, match="has 2 changes"):
                next_offset(access, beyond)


async def test_records_that_retention_has_deleted_are_refused_by_their_names() -> None:
    store = MemoryStore()
    async with first_broker(store, parts=2) as core:
        await fill(core, WHOLE, TABLE_EVERY + 10)
        with reading(store) as access:
            start = first_offset(access, "beginning")
            planned = plan_slices(access, start, next_offset(access, start), changes=1000)
            await core.catalogs.retain("orders", seconds=None, bytes_=0)
            await asyncio.sleep(200)
            message = (
                f"records 1 to {TABLE_EVERY} of range '{WHOLE}'.* new checkpoint directory"
            )
            with pytest.raises(UserError, match=message), query_advice():
                next_offset(access, start)
            with pytest.raises(RangeRefused, match="deleted by retention"):
                names(access, planned[0])
        with reading(store) as access:
            now = first_offset(access, "beginning")
            assert now.marks[WHOLE].position == at(access, TABLE_EVERY)
            _, batches = drained(access, now)
    assert [n for x in batches for _, n in x] == [*range(TABLE_EVERY + 1, TABLE_EVERY + 11)]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda x: x[:-1] + bytes([x[-1] ^ 1]), "checksum"),
        (lambda x: x[:-5], "ends before"),
        (lambda _: None, "missing"),
    ],
)
async def test_damage_is_refused_for_the_range_that_it_is_in(
    harm: Callable[[bytes], bytes | None], message: str
) -> None:
    store = MemoryStore()
    async with first_broker(store, parts=2) as core:
        await fill(core, OTHER, 1)
        await fill(core, WHOLE, 1)
        await fill(core, OTHER, 1, at_us=2)
        key = "wal/00000001/broker-1/000000000002"
        damaged = harm(store.objects[key])
        with reading(store) as access:
            start = first_offset(access, "beginning")
            slices = plan_slices(access, start, next_offset(access, start), changes=100)
        if damaged is None:
            del store.objects[key]
        else:
            store.objects[key] = damaged
        with reading(store) as access:
            if damaged is not None:
                assert [x for _, x in names(access, slices[1])] == [1, 2]
            with pytest.raises(RangeDamaged, match=rf"(?s){WHOLE}.*{message}"):
                names(access, slices[0])


async def test_a_slice_is_asked_for_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    store, part, together = MemoryStore(), StoredCollection.part, asyncio.Barrier(2)
    async with first_broker(store, parts=2) as core:
        await fill(core, WHOLE, 2)

    async def answered_with_another(*asked: Any) -> Part:
        async with asyncio.timeout(10):
            await together.wait()
        return await part(*asked)

    monkeypatch.setattr(StoredCollection, "part", answered_with_another)
    with reading(store) as access:
        edges = [at(access, n) for n in range(3)]
        slices = [Slice(range_id=WHOLE, start=a, end=b) for a, b in pairwise(edges)]
        begun = [access.read(x) for x in slices]
        assert [len(y) for x in begun for _, y in x] == [1, 1]


async def test_what_cannot_be_opened_is_refused_or_waited_for_and_nothing_is_made() -> None:
    store = WatchedStore()
    with pytest.raises(FeedRefused, match="no cluster here"), reading(store):
        pass
    assert not store.objects
    async with first_broker(store, parts=2):
        pass
    with pytest.raises(FeedRefused, match="it has orders"), reading(store, name="order"):
        pass
    for error, kind in (
        (StoreRefused("no right to read az://c"), FeedRefused),
        (StoreUnavailable("az://c is away"), FeedUnavailable),
    ):

        async def fail(_call: str, _key: str, error: Exception = error) -> None:
            raise error

        store.before = fail
        with pytest.raises(kind, match="az://c"), reading(store):
            pass


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("file:///data/cluster", "file:///data/cluster"),
        ("az://container/prefix#Orders!", "Orders!"),
        ("file:data#orders", "file:data"),
        ("s3://#orders", "s3://"),
        ("file://host/data#orders", "file://host/data"),
    ],
)
def test_addresses_of_stores_that_are_none_are_refused(address: str, named: str) -> None:
    with pytest.raises(FeedRefused, match=named):
        open_access(address)


def test_blocks_are_cut_to_what_is_wanted_and_gaps_are_not_taken_for_data() -> None:
    blocks = [
        Block(first=3, count=2, columns=columns("a", "b")),
        Block(first=5, count=3, columns=columns("c", "d", "e")),
    ]
    found = columns_of(blocks, 3, 6)
    assert (found.first, found.count, found.skip) == (4, 3, 1)
    assert found.layout.keys == b"abcde"
    for wrong, after in (
        ([], 0),
        (blocks, 1),
        (blocks[1:], 8),
        ([blocks[0], blocks[0]], 2),
        (
            [blocks[0], Block(first=6, count=2, columns=columns("d", "e"))],
            2,
        ),
    ):
        with pytest.raises(FeedUnavailable, match="left out"):
            columns_of(wrong, after, 9)
