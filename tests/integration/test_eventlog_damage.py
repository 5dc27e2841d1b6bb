"""Bytes of an event log that are not those that were written: none is ever delivered."""

import shutil
from pathlib import Path
from random import Random

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedError, RangeDamaged
from changefeed.feeds.eventlog import EventLog, EventLogWriter
from changefeed.feeds.eventlog.block_format import Layout
from changefeed.feeds.eventlog.bulk import BulkLog
from changefeed.feeds.feed import Change, FeedRange
from tests.support.damaged_logs import (
    HURT,
    NEW_YEAR,
    SOUND,
    full_log,
    full_records,
    read_by_pages,
    read_in_bulk,
    records_of,
    written,
)

pytestmark = pytest.mark.real_time

COLUMNS = Layout._fields
NUMBERS = ("last", "latest_us", "stored")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    return await full_log(tmp_path / "log", 2000)


def block_firsts(path: Path) -> list[int]:
    with records_of(path) as file:
        rows = file.execute("SELECT first FROM blocks WHERE partition = 1 ORDER BY first")
        return [first for (first,) in rows]


def flip(path: Path, column: str, first: int, byte: int = 0) -> None:
    """Change one byte of a column, or one bit of a number, of a block of the hurt range."""
    with records_of(path) as file:
        where = "WHERE partition = 1 AND first = ?"
        ((value,),) = file.execute(f"SELECT {column} FROM blocks {where}", (first,))
        if isinstance(value, int):
            changed: object = value ^ 1
        else:
            changed = bytes([*value[:byte], value[byte] ^ 1, *value[byte + 1 :]])
        file.execute(f"UPDATE blocks SET {column} = ? {where}", (changed, first))


async def assert_damaged_from(path: Path, first: int, changes: list[Change]) -> None:
    """What lies before is delivered, nothing else is; the other range is as it was."""
    async with EventLog.open(path) as log:
        delivered, error = await read_by_pages(log, HURT)
        assert delivered == changes[: first - 1]
        assert isinstance(error, RangeDamaged)
        assert error.range_id == HURT
        assert f"changes {first} to " in str(error)
        assert str(path) in str(error)
        assert f"changefeed reset {HURT} --to={log.identity[:8]}/" in str(error)
        others, nothing = await read_by_pages(log, SOUND)
        assert (len(others), nothing) == (2000 - len(changes), None)
    found, bulk_error = read_in_bulk(path, HURT, len(changes))
    assert isinstance(bulk_error, RangeDamaged)
    keys = b"".join(x.key.encode() for x in changes[: first - 1])
    assert keys.startswith(b"".join(found))
    assert read_in_bulk(path, SOUND, 2000 - len(changes))[1] is None


@pytest.mark.parametrize("column", [*COLUMNS, "checks", *NUMBERS])
@pytest.mark.parametrize("place", [0, 1, -1], ids=["first block", "middle", "last block"])
async def test_a_flipped_byte_in_any_column_stops_its_range_before_the_block(
    path: Path, column: str, place: int
) -> None:
    changes = await written(path)
    firsts = block_firsts(path)
    assert len(firsts) > 3
    flip(path, column, firsts[place])
    await assert_damaged_from(path, firsts[place], changes)


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_column_cut_short_stops_its_range(path: Path, column: str) -> None:
    changes, first = await written(path), block_firsts(path)[1]
    with records_of(path) as file:
        file.execute(
            f"UPDATE blocks SET {column} = substr({column}, 1, length({column}) - 1)"
            " WHERE partition = 1 AND first = ?",
            (first,),
        )
    await assert_damaged_from(path, first, changes)


@pytest.mark.parametrize("place", [0, 1, -1], ids=["first block", "middle", "last block"])
async def test_a_block_that_is_gone_stops_its_range_and_is_not_skipped(
    path: Path, place: int
) -> None:
    changes, first = await written(path), block_firsts(path)[place]
    with records_of(path) as file:
        file.execute("DELETE FROM blocks WHERE partition = 1 AND first = ?", (first,))
    await assert_damaged_from(path, first, changes)


async def test_blocks_that_have_changed_places_are_noticed(path: Path) -> None:
    changes, (first, second, *_) = await written(path), block_firsts(path)
    with records_of(path) as file:
        for begin, end in ((first, -1), (second, first), (-1, second)):
            file.execute(
                "UPDATE blocks SET first = ?, last = ? WHERE partition = 1 AND first = ?",
                (end, end + 255, begin),
            )
    await assert_damaged_from(path, first, changes)


async def test_a_block_of_another_range_is_noticed(path: Path) -> None:
    changes = await written(path)
    with records_of(path) as file:
        file.execute("DELETE FROM blocks WHERE partition = 1 AND first = 1")
        row = file.execute("SELECT * FROM blocks WHERE partition = 2 AND first = 1").fetchone()
        marks = ", ".join("?" * len(row))
        file.execute(f"INSERT INTO blocks VALUES ({marks})", (1, *row[1:]))
    await assert_damaged_from(path, 1, changes)


async def test_a_block_without_its_checksums_is_damaged(path: Path) -> None:
    changes = await written(path)
    with records_of(path) as file:
        file.execute("UPDATE blocks SET checks = x'' WHERE partition = 1 AND first = 1")
    await assert_damaged_from(path, 1, changes)


async def test_a_reader_may_go_on_behind_a_damaged_block_where_the_error_says(
    path: Path,
) -> None:
    changes, firsts = await written(path), block_firsts(path)
    flip(path, "bodies", firsts[1])
    async with EventLog.open(path) as log:
        _, error = await read_by_pages(log, HURT)
        behind = str(error).rsplit("--to=", 1)[1]
        rest, none = await read_by_pages(log, HURT, start=behind)  # type: ignore[arg-type]
    assert (rest, none) == (changes[firsts[2] - 1 :], None)


@pytest.mark.parametrize("column", ["times", "checks", "latest_us", "last"])
async def test_a_start_at_a_time_is_not_taken_from_a_damaged_block(
    path: Path, column: str
) -> None:
    first = block_firsts(path)[0]
    flip(path, column, first)
    async with EventLog.open(path) as log:
        with pytest.raises(RangeDamaged):
            await log.start(FeedRange(id=HURT), NEW_YEAR)
    with pytest.raises(RangeDamaged):
        BulkLog.at(path).sequence_before(HURT, int(NEW_YEAR.timestamp()) * 1_000_000)


@pytest.mark.parametrize("column", ["last", "latest_us", "stored", "first", "size", "checks"])
async def test_an_end_that_is_damaged_takes_no_changes_and_says_so(
    path: Path, column: str
) -> None:
    with records_of(path) as file:
        ((value,),) = file.execute(f"SELECT {column} FROM partitions WHERE partition = 1")
        changed = value + 1 if isinstance(value, int) else bytes([value[0] ^ 1, *value[1:]])
        file.execute(f"UPDATE partitions SET {column} = ? WHERE partition = 1", (changed,))
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        with pytest.raises(RangeDamaged, match=r"the end of range .* nothing can be appended"):
            await writer.append(full_records(20))
        with pytest.raises(RangeDamaged, match="the end of range"):
            await log.start(FeedRange(id=HURT), "now")
        assert (
            await lag_of(log, FeedRange(id=SOUND), await log.start(FeedRange(id=SOUND), "now"))
            == 0
        )
    with pytest.raises(RangeDamaged, match="the end of range"):
        BulkLog.at(path).ends()


async def test_a_block_that_was_damaged_before_it_grew_stays_damaged(path: Path) -> None:
    changes, last = await written(path), block_firsts(path)[-1]
    flip(path, "keys", last)
    async with EventLogWriter.open(path) as writer:
        await writer.append(full_records(2))
    async with EventLog.open(path) as log:
        delivered, error = await read_by_pages(log, HURT)
    assert delivered == changes[: last - 1]
    assert isinstance(error, RangeDamaged)


@pytest.mark.parametrize("seed", range(60))
async def test_of_a_file_with_random_damage_only_what_was_written_is_delivered(
    path: Path, tmp_path: Path, seed: int
) -> None:
    """No lie, wherever the bytes are: an error, or what was written."""
    truth = {x: await written(path, x) for x in (HURT, SOUND)}
    chance = Random(seed)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    file = copy / "brokers/1/records.db"
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 3, 20])):
        at, kind = chance.randrange(len(data)), chance.randrange(3)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.randrange(256)
        else:
            size = chance.choice([16, 512, 4096])
            data[at : at + size] = bytes(len(data[at : at + size]))
    if seed % 10 == 9:
        del data[chance.randrange(len(data)) :]
    file.write_bytes(data)
    try:
        async with EventLog.open(copy) as log:
            for range_id, changes in truth.items():
                delivered, error = await read_by_pages(log, range_id)
                assert delivered == changes[: len(delivered)]
                assert error is not None or delivered == changes
        for range_id, changes in truth.items():
            found, error = read_in_bulk(copy, range_id, len(changes))
            keys = b"".join(x.key.encode() for x in changes)
            assert keys.startswith(b"".join(found))
            assert error is not None or b"".join(found) == keys
    except FeedError:
        pass  # refused as a whole


def test_each_kind_of_damage_is_tried_on_each_column_there_is(path: Path) -> None:
    with records_of(path) as file:
        names = [x[1] for x in file.execute("PRAGMA table_info(blocks)")]
    assert {*COLUMNS, *NUMBERS, "checks", "partition", "first"} == set(names)
