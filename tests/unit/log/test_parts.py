"""Parts of the partitions of an event log, and the pages that they share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedRefused, RangeDamaged
from changefeed.feeds.feed import FeedRange, Operation, Page, Position, RangeEnded, RangeId
from changefeed.log.catalog.ranges import Partition
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.hashing import virtual_part_of
from changefeed.log.ids import position
from changefeed.log.reading import parts as parts_of
from changefeed.log.records import Record
from tests.support import make

pytestmark = pytest.mark.real_time  # the log has threads
WHOLE = RangeId("e1.p01.v00-ff")
RECORDS = 6000
BODY, BEFORE = b"123", b"12"


@asynccontextmanager
async def filled(path: Path) -> AsyncIterator[tuple[EventLog, FeedRange]]:
    await create_log(path, 1)
    async with EventLogWriter.open(path) as writer:
        for n in range(0, RECORDS, 1000):
            records = [
                Record(key=f"k{x}", body=BODY, previous=BEFORE, operation=Operation.REPLACE)
                for x in range(n, n + 1000)
            ]
            await writer.send_many(records)
    async with EventLog.open(path) as log:
        yield log, (await log.ranges())[0]


async def read_all(log: EventLog, name: RangeId, limit: int = 300) -> int:
    after, count = position(log.identity, 0), 0
    while (page := await log.read(FeedRange(id=name), after, limit)).changes:
        count += len(page.changes)
        after = page.position
    assert await lag_of(log, FeedRange(id=name), page.position) == 0
    return count


@pytest.mark.parametrize("into", [1, 3, 8])
async def test_parts_of_a_partition_decode_its_pages_once(tmp_path: Path, into: int) -> None:
    async with filled(tmp_path / "log") as (log, whole):
        parts = log.split(whole, max(into, 2))
        if into == 1:
            parts = [log.merge(parts)]
        async with asyncio.TaskGroup() as group:
            read = [group.create_task(read_all(log, x.id)) for x in parts]
        assert sum(x.result() for x in read) == RECORDS
        assert log._parts.decoded == RECORDS


@pytest.mark.parametrize("missing", [0, 1])
async def test_pages_are_kept_for_other_parts_as_long_as_they_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """A change takes its body, its image before, and as much again as it takes in Python."""
    size = RECORDS * (parts_of._CHANGE_BYTES + len(BODY) + len(BEFORE))
    monkeypatch.setattr(parts_of, "_CACHED_BYTES", size - missing)
    async with filled(tmp_path / "log") as (log, whole):
        for part in log.split(whole, 2):
            await read_all(log, part.id)
        assert log._parts.decoded == (2 * RECORDS if missing else RECORDS)


def test_ids_of_parts_are_what_leases_keep() -> None:
    whole = FeedRange(id=WHOLE, low="p01.v000", high="p01.v100")
    names = [x.id for x in parts_of.cut(whole, 3)]
    assert names == [f"{WHOLE}~00-54", f"{WHOLE}~55-a9", f"{WHOLE}~aa-ff"]


def test_a_partition_is_not_cut_finer_than_its_virtual_parts() -> None:
    narrow = FeedRange(id=RangeId("e2.p01.v10-12"), low="p01.v010", high="p01.v013")
    names = [f"{narrow.id}~{x}-{x}" for x in (10, 11, 12)]
    assert [x.id for x in parts_of.cut(narrow, 3)] == names
    with pytest.raises(FeedRefused, match="has 3 virtual parts"):
        parts_of.cut(narrow, 4)


def partition(low: int = 0, high: int = 255) -> Partition:
    return Partition(era=1, part=0, low=low, high=high, broker="local")


def part(low: int, high: int, of: Partition) -> parts_of.Part:
    return parts_of.Part(id=RangeId(f"{WHOLE}~x"), partition=of, low=low, high=high)


async def test_a_part_passes_over_what_others_hold_for_a_while_and_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts_of, "_MAX_SCAN", 0.05)
    place = virtual_part_of("k")

    async def read(_: Partition, after: Position, limit: int) -> Page:
        await asyncio.sleep(0.001)
        first = int(after.rpartition("/")[2]) + 1
        changes = [make.change(x) for x in range(first, first + limit)]
        return Page(changes=changes, position=after)

    reader = parts_of.PartReader("f" * 32, read)
    other = part(*((place + 1, 255) if place < 255 else (0, 254)), partition())
    page = await reader.read(other, position("f" * 32, 0), 100)
    assert not page.changes
    assert int(page.position.rpartition("/")[2]) >= 1000


async def test_what_is_in_no_virtual_part_of_a_partition_is_in_its_lowest_part() -> None:
    place = virtual_part_of("k")
    of = partition(place + 1, 255) if place < 128 else partition(0, place - 1)
    changes = [make.change(1)]

    async def read(_: Partition, after: Position, limit: int) -> Page:
        del limit
        return Page(changes=changes if after.endswith("/0") else [], position=after)

    reader, start = parts_of.PartReader("f" * 32, read), position("f" * 32, 0)
    lowest, others = part(of.low, of.low, of), part(of.low + 1, of.high, of)
    assert [x.sequence for x in (await reader.read(lowest, start, 9)).changes] == [1]
    assert not (await reader.read(others, start, 9)).changes


async def test_what_is_wrong_with_a_partition_is_said_of_the_part() -> None:
    errors: list[Exception] = [
        RangeDamaged(WHOLE, f"changes of {WHOLE}: changefeed reset {WHOLE} --to=x"),
        RangeEnded(WHOLE, ()),
    ]

    async def read(_: Partition, __: Position, ___: int) -> Page:
        raise errors.pop(0)

    reader, start = parts_of.PartReader("f" * 32, read), position("f" * 32, 0)
    name = RangeId(f"{WHOLE}~00-7f")
    half = parts_of.Part(id=name, partition=partition(), low=0, high=127)
    with pytest.raises(RangeDamaged, match=f"reset {name} --to") as damaged:
        await reader.read(half, start, 9)
    assert damaged.value.range_id == name
    with pytest.raises(RangeEnded) as ended:
        await reader.read(half, start, 9)
    assert ended.value.range_id == name
