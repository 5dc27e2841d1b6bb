"""What lies in the tables of an event log, and cannot have been written there."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedError, FeedRefused, RangeDamaged
from changefeed.feeds.eventlog import EventLog, EventLogWriter, Record, SealPolicy, create_log
from changefeed.feeds.feed import Change, FeedRange, RangeId
from tests.support.damaged_logs import append_some, everyone_is_refused, read_by_pages

pytestmark = pytest.mark.real_time

FIRST, SECOND = RangeId("e1.p00.v00-ff"), RangeId("e1.p01.v00-ff")
CATALOG, RECORDS = "catalog.db", "brokers/1/records.db"
ADVICE = "damaged.*[Rr]estore .*directory from a copy"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    await create_log(tmp_path / "log", 2)
    async with EventLogWriter.open(tmp_path / "log", synchronous="off") as writer:
        for begin in range(0, 600, 50):  # blocks that grew
            await writer.append([Record(key=f"k{n}") for n in range(begin, begin + 50)])
    return tmp_path / "log"


def put(path: Path, table: str, column: str, value: object, where: str = "true") -> None:
    """Write a value that the table itself would not take."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA writable_schema = ON")
        file.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))


@pytest.mark.parametrize("file", [CATALOG, RECORDS])
@pytest.mark.parametrize("table", [b"CREATE TABLE log", b"CREATE TABLE partitions"])
async def test_a_schema_that_is_no_text_is_damage(path: Path, file: str, table: bytes) -> None:
    bytes_ = (path / file).read_bytes()
    assert bytes_.count(table) == 1
    (path / file).write_bytes(bytes_.replace(table, b"CREATE TABLE \xff" + table[14:]))
    await everyone_is_refused(path, f"{file}: .*{ADVICE}")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("log", x) for x in ("identity", "format", "parts")),
        ("brokers", "folder"),
        *(("partitions", x) for x in ("id", "era", "part", "low", "high", "broker", "closed")),
    ],
)
@pytest.mark.parametrize("value", [None, b"\xff"], ids=["nothing", "bytes"])
async def test_a_catalog_with_a_value_of_another_kind_is_refused(
    path: Path, table: str, column: str, value: object
) -> None:
    where = "number = 2" if table == "partitions" else "true"
    put(path / CATALOG, table, column, value, where)
    await everyone_is_refused(path, f"catalog.db: Expected .*{ADVICE}")


@pytest.mark.parametrize("column", ["identity", "format", "broker"])
@pytest.mark.parametrize("value", [None, b"\xff"], ids=["nothing", "bytes"])
async def test_records_with_a_value_of_another_kind_are_refused(
    path: Path, column: str, value: object
) -> None:
    put(path / RECORDS, "log", column, value)
    await everyone_is_refused(path, f"records.db: Expected .*{ADVICE}")


async def test_a_text_that_is_no_utf_8_is_damage(path: Path) -> None:
    with closing(sqlite3.connect(path / CATALOG, isolation_level=None)) as file:
        file.execute("UPDATE log SET identity = CAST(x'ff' AS TEXT)")
    await everyone_is_refused(path, f"catalog.db: Could not decode to UTF-8 .*{ADVICE}")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", "e1.p01.v00-fe"),
        ("id", "e1.q01.v00-ff"),
        ("era", 2),
        ("part", 3),
        ("low", 1),
        ("high", 254),
        ("broker", 3),
    ],
)
async def test_a_range_that_is_not_called_what_it_holds_is_refused(
    path: Path, column: str, value: object
) -> None:
    """Under another name all its changes would be read again."""
    put(path / CATALOG, "partitions", column, value, "number = 2")
    name = value if column == "id" else SECOND
    said = f"catalog.db is damaged: what it says of range '{name}' .*Restore the directory"
    await everyone_is_refused(path, said)


@pytest.mark.parametrize("parts", [0, 1, 3, 2**62])
async def test_another_number_of_parts_than_there_are_is_refused(
    path: Path, parts: int
) -> None:
    """With it a key would go on in another range than it began in."""
    put(path / CATALOG, "log", "parts", parts)
    said = f"catalog.db is damaged: that the log has {parts} parts is not what was written"
    await everyone_is_refused(path, said)


@pytest.mark.parametrize("column", ["last", "latest_us", "stored", "first", "size", "checks"])
@pytest.mark.parametrize("value", [None, "x"], ids=["nothing", "text"])
async def test_an_end_of_another_kind_concerns_its_range(
    path: Path, column: str, value: object
) -> None:
    put(path / RECORDS, "partitions", column, value, "partition = 1")
    async with EventLog.open(path) as log, EventLogWriter.open(path) as writer:
        with pytest.raises(RangeDamaged, match="the end of range"):
            await log.start(FeedRange(id=FIRST), "now")
        assert (
            await lag_of(
                log, FeedRange(id=SECOND), await log.start(FeedRange(id=SECOND), "now")
            )
            == 0
        )
        with pytest.raises(RangeDamaged, match="nothing can be appended"):
            await writer.append([Record(key=f"k{n}") for n in range(20)])
        if column not in ("latest_us", "checks"):  # sealing does without these
            with pytest.raises(FeedRefused, match=ADVICE):
                await writer.seal(SealPolicy(everything=True))


@pytest.mark.parametrize("seed", range(60))
async def test_of_a_catalog_with_random_damage_only_what_was_written_is_delivered(
    path: Path, tmp_path: Path, seed: int
) -> None:
    """No lie, and no other error, at any byte."""

    async def everything(home: Path) -> dict[RangeId, list[Change]]:
        async with EventLog.open(home) as log:
            return {x.id: (await read_by_pages(log, x.id))[0] for x in await log.ranges()}

    truth = await everything(path)
    chance = Random(seed)
    shutil.copytree(path, tmp_path / "copy")
    data = bytearray((path / CATALOG).read_bytes())
    used = [at for at, byte in enumerate(data) if byte]
    data[chance.choice(used)] = chance.choice([0, 0xFF, chance.randrange(256)])
    (tmp_path / "copy" / CATALOG).write_bytes(data)
    try:
        assert await everything(tmp_path / "copy") == truth
        await append_some(tmp_path / "copy")
    except FeedError:
        pass
