"""Rows as readers find them: seals where tables would be, and objects that were damaged."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import Row
from changefeed.log.catalog.names import flush_key
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import lay_out
from changefeed.log.format.flush import FlushHeader, decode_header, encode_flush
from changefeed.log.format.pack import Key, Place, Records
from changefeed.log.records import Record, encode_record
from changefeed.log.rows.object_cache import ObjectCache
from changefeed.log.rows.open_row import OpenRow, WriterPlace
from changefeed.log.rows.row_reader import RowReader
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.calls import gather_or_cancel
from tests.support.brokers import batch

P1 = RangeId("e1.p01.v00-ff")
P2 = RangeId("e1.p02.v00-ff")
KEY = ("orders", P1)


async def stored_row(at_us: Sequence[int], *, of_another: int = 0) -> MemoryStore:
    """Store a row of objects with a record each, and the seal of a dead broker.

    One of the objects may have its record in another partition.
    """
    store, times = MemoryStore(), count(1)
    row = OpenRow(WriterPlace("c", 1, "b", "b1"), lambda: next(times))
    for n, at in enumerate(at_us, 1):
        key = ("orders", P2 if n == of_another else P1)
        made = row.make({key: batch(key[1], f"k{n}", at_us=at).columns})
        await store.create(made.key, made.data)
        row.add(made)
    seal = FlushHeader(
        cluster="c",
        era=1,
        broker="b",
        incarnation="master",
        number=row.next,
        written_us=row.next,
        seal=True,
    )
    await store.create(flush_key(1, "b", row.next), encode_flush(seal))
    return store


def reader_of(
    store: MemoryStore, *, sealed_at: int | None = None, cache: ObjectCache | None = None
) -> RowReader:
    reader = RowReader(store, "c", 1, "b", cache or ObjectCache(10**6))
    reader.learn(Row(broker="b", incarnation="b1", address="", sealed_at=sealed_at))
    return reader


async def lasts(reader: RowReader) -> Mapping[Key, int]:
    return {key: x.last for key, x in (await reader.ends()).items()}


async def test_a_time_is_found_where_what_is_left_has_it() -> None:
    """Retention took the latest times, of records that came early."""
    store = await stored_row(at_us=[900, 5, 7, 6, 8])
    reader = reader_of(store, sealed_at=6)
    assert await reader.sequence_before(KEY, 7, after=1) == 2
    assert await reader.sequence_before(KEY, 9, after=1) is None


async def test_what_is_kept_of_a_row_is_counted_in_bytes() -> None:
    cache = ObjectCache(40_000, 10_000)
    reader = reader_of(await stored_row(range(1, 201)), cache=cache)
    await reader.tail()
    for after in range(200):
        (block, *_) = await reader.read(KEY, after, 1)
        assert block.first <= after + 1 <= block.last
    assert 0 < cache.windows.bytes <= 20_000
    assert cache.headers.bytes <= 10_000


class SlowStore(MemoryStore):
    """Lets others go on before it answers."""

    asked = 0

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        self.asked += 1
        await asyncio.sleep(0.1)
        return await super().get(key, start, end)


async def test_several_that_look_for_the_end_of_a_row_stop_at_its_seal() -> None:
    """What its broker had on the way behind the seal was never acknowledged."""
    store = SlowStore()
    store.objects = (await stored_row(range(1, 7))).objects
    late = decode_header(store.objects[flush_key(1, "b", 6)], "c", Place(1, "b", 6))
    columns = lay_out([encode_record(Record(key="late"), 1)])
    records = Records(KEY, 7, 7, 9, 9, columns)
    behind = encode_flush(replace(late, number=8, sections=(), table=None), [records])
    store.objects[flush_key(1, "b", 8)] = behind
    reader = reader_of(store)
    await gather_or_cancel(*(reader.tail() for _ in range(3)))
    assert reader.known == 7
    assert reader.sealed_at == 7
    assert (await reader.ends())[KEY].last == 6


async def test_what_goes_on_while_it_is_read_is_read_once() -> None:
    """Its window has to make room meanwhile: read anew, its records lie together."""
    store = SlowStore()
    store.objects = (await stored_row(range(1, 5))).objects
    reader = reader_of(store)
    reader.known = 2
    reading = asyncio.create_task(reader.read(KEY, 0, 10**6))
    await asyncio.sleep(0.15)  # its table is known, and the window is on its way
    reader.known = 4
    async with reader._extending:
        reader._cache.windows.pop((1, "b", 1))
    (block,) = await reading
    assert (block.first, block.count) == (1, len(block.columns.kinds))
    (block,) = await reader.read(KEY, block.last, 10**6)
    assert (block.last, block.first + block.count - 1) == (4, 4)


async def test_a_row_ends_at_a_seal_that_lies_behind_a_damaged_object() -> None:
    """Both are in one window. Whether the object was acknowledged, its writer has to say."""
    store = await stored_row(range(1, 31))
    key = flush_key(1, "b", 5)
    whole, store.objects[key] = store.objects[key], b"no object of a row"
    for stranger in (reader_of(store), reader_of(store)):  # the second one finds a new window
        with pytest.raises(Damaged, match="is not what was written"):
            await stranger.tail()
        assert (stranger.known, stranger.sealed_at) == (4, None)
        with pytest.raises(Damaged):
            await stranger.read(KEY, 4, 10**6)
    told = reader_of(store)
    assert await told.tail(hint=5) == 31
    assert told.sealed_at == 31
    with pytest.raises(Damaged):  # the seal is a master's, without a table
        await told.ends()
    assert [x.last for x in await told.read(KEY, 5, 10**6)] == [30]
    store.objects[key] = whole
    assert (await stranger.tail(), stranger.sealed_at) == (31, 31)
    assert [x.last for x in await stranger.read(KEY, 0, 10**6)] == [30]


async def test_a_row_goes_on_behind_a_damaged_object_once_that_can_be_no_seal() -> None:
    """So it does for who reads it all the time. What the object had of whom, a table says."""
    whole = await stored_row(range(1, 80), of_another=3)
    whole.objects[flush_key(1, "b", 5)] = b"no object of a row"
    store, other = MemoryStore(), ("orders", P2)
    reader = reader_of(store)

    def grow(last: int) -> None:
        store.objects |= {
            x: y for x, y in whole.objects.items() if x <= flush_key(1, "b", last)
        }

    grow(36)
    for asked in (reader.tail, reader.check_end):
        with pytest.raises(Damaged, match="000000000005 is not what was written"):
            await asked()
    assert (reader.known, await lasts(reader)) == (4, {KEY: 3, other: 1})
    grow(60)
    assert await reader.tail() == 60
    await reader.check_end()
    assert [(x.first, x.last) for x in await reader.read(KEY, 0, 10**6)] == [(1, 3)]
    with pytest.raises(Damaged, match="records 4 to 4 are missing"):
        await reader.read(KEY, 3, 10**6)
    assert [(x.first, x.last) for x in await reader.read(KEY, 4, 10**6)] == [(5, 59)]
    assert await reader.read(KEY, 59, 10**6) == []
    assert [x.last for x in await reader.read(other, 0, 10**6)] == [1]
    for nobody_knows in (reader.ends(), reader.read(other, 1, 10**6)):
        with pytest.raises(Damaged, match="000000000005 is not what was written"):
            await nobody_knows
    grow(80)
    assert (await reader.tail(), reader.sealed_at) == (80, 80)
    assert await lasts(reader) == {KEY: 78, other: 1}
    assert await reader.read(other, 1, 10**6) == []


async def test_ends_are_right_of_a_row_that_grows_while_they_are_read() -> None:
    """They are those that another reader finds, who begins there."""
    store = SlowStore()
    store.objects = (await stored_row(range(1, 400), of_another=3)).objects
    reader = reader_of(store)
    reader.known = 2
    asking = asyncio.create_task(reader.ends())
    await asyncio.sleep(0.05)
    reader.known = 5
    await asking
    for known in (5, 60, 64, 65, 130, 399):
        reader.known = known
        other = reader_of(store)
        other.known = known
        store.asked = 0
        assert await reader.ends() == await other.ends()
        assert store.asked <= 2 * 64 + 16, "far behind it begins anew"
    assert await lasts(reader) == {KEY: 398, ("orders", P2): 1}


async def test_ends_are_right_of_a_row_whose_beginning_is_deleted_meanwhile() -> None:
    store = await stored_row(range(1, 80), of_another=62)
    reader = reader_of(store)
    reader.known = 60
    assert await lasts(reader) == {KEY: 60}
    for n in range(1, 65):
        del store.objects[flush_key(1, "b", n)]
    reader.known = 62
    with pytest.raises(Damaged, match="is missing"):  # as far as this catalog says
        async with asyncio.timeout(10):
            await reader.ends()
    reader.learn(Row(broker="b", incarnation="b1", kept_from=65))
    reader.known = 70
    assert await lasts(reader) == {KEY: 69, ("orders", P2): 1}
