"""Rows that are read in long stretches: what is looked at once is not looked at again."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from changefeed.brokers.open_partition import OpenPartition
from changefeed.feeds.brokers.ahead_reader import AheadReader
from changefeed.feeds.brokers.catalog import Catalog, Era, Row
from changefeed.feeds.brokers.flush import Ends, FlushHeader, Key, encode_flush, has_table
from changefeed.feeds.brokers.names import flush_key
from changefeed.feeds.brokers.row_readers import ahead_readers
from changefeed.feeds.feed import RangeId
from tests.support.brokers import batch
from tests.support.watched_store import Call, WatchedStore

KEYS: Sequence[Key] = [("orders", RangeId(f"e1.p{n:02}.v00-ff")) for n in range(1, 9)]
OBJECTS = 2000
CATALOG = Catalog(
    number=1,
    identity="c",
    eras=(Era(number=1, began_us=1, rows=(Row(broker="b", incarnation="b1"),)),),
)


class Gets(WatchedStore):
    """Counts how often each object of a row was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = Counter[str]()
        self.before = self._count

    async def _count(self, call: Call, key: str) -> None:
        if call == "get":
            self.counted[key] += 1


async def row_of_single_records() -> Gets:
    """Store a row whose objects have a record each, of eight partitions in turn."""
    store = Gets()
    partitions = [OpenPartition(*key) for key in KEYS]
    for n in range(1, OBJECTS + 1):
        partition = partitions[n % len(KEYS)]
        header = FlushHeader(
            cluster="c",
            era=1,
            broker="b",
            incarnation="b1",
            number=n,
            written_us=n,
            table=tuple(x.end for x in partitions) if has_table(n) else None,
        )
        one = batch(partition.partition, "k")
        accepted = partition.accept(one)
        sections = [partition.section([accepted], n)]
        await store.create(flush_key(1, "b", n), encode_flush(header, sections))
    return store


def reader_of(store: Gets, memory: int) -> AheadReader:
    return ahead_readers(store, "c", memory, 16).row(CATALOG, 1, "b")


async def test_partitions_that_are_read_in_turns_look_at_each_object_once() -> None:
    store = await row_of_single_records()
    reader = reader_of(store, memory=128 * 1024)  # not all of what is read fits into it
    await reader.tail()
    store.counted.clear()
    after = dict.fromkeys(KEYS, 0)
    while sum(after.values()) < OBJECTS:
        for key in KEYS:
            for block in await reader.read(key, after[key], 10**6):
                assert block.first == after[key] + 1
                after[key] += block.count
    looked_at = [n for key, n in store.counted.items() if not has_table(int(key[-12:]))]
    assert max(looked_at) <= 2, "once for all, and once where a table is found by halving"


async def test_of_many_that_ask_where_partitions_end_one_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = reader_of(await row_of_single_records(), memory=10**7)
    await reader.tail()
    looked = []

    async def ends() -> Ends:
        looked.append(1)
        await asyncio.sleep(0)
        return await AheadReader.ends(reader)

    monkeypatch.setattr(reader, "ends", ends)
    found = await asyncio.gather(*(reader.lasts() for _ in range(20)))
    assert all(x == dict.fromkeys(KEYS, OBJECTS // len(KEYS)) for x in found)
    assert len(looked) == 1
