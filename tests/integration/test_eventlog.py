"""The event log over real files, in one process."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.eventlog import EventLog, EventLogWriter, Record, create_log
from changefeed.feeds.eventlog.schema import FORMAT
from changefeed.feeds.feed import Change, Feed, FeedRange, RangeId
from changefeed.runtime import open_database
from tests.support.damaged_logs import everyone_is_refused
from tests.support.disks import small_disk_at

pytestmark = pytest.mark.real_time

WHOLE = RangeId("e1.p00.v00-ff")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log with one part, so that all keys are in one range."""
    await create_log(tmp_path / "log", parts=1)
    return tmp_path / "log"


FULL = 2
"""SQLite's number for ``synchronous = full``: each commit waits for the disk."""


def numbered(count: int, begin: int = 0) -> list[Record]:
    return [Record(key=f"key-{n}", body=b"%d" % n) for n in range(begin, begin + count)]


async def whole(feed: Feed, range_id: RangeId = WHOLE) -> list[Change]:
    changes: list[Change] = []
    after = await feed.start(FeedRange(id=range_id), "beginning")
    while (page := await feed.read(FeedRange(id=range_id), after, 1000)).changes:
        changes += page.changes
        after = page.position
    return changes


async def test_a_new_log_has_twelve_ranges_unless_told_otherwise(tmp_path: Path) -> None:
    await create_log(tmp_path / "deep" / "down" / "log")
    async with EventLog.open(tmp_path / "deep" / "down" / "log") as log:
        ranges = await log.ranges()
    assert [x.id for x in ranges] == [f"e1.p{n:02}.v00-ff" for n in range(12)]
    assert (ranges[3].low, ranges[3].high, ranges[3].parents) == ("p03.v000", "p03.v100", ())


async def test_an_append_tells_which_sequences_it_got(path: Path) -> None:
    async with EventLogWriter.open(path) as writer:
        assert (await writer.append(numbered(3))).sequences == {WHOLE: range(1, 4)}
        assert (await writer.append(numbered(700))).sequences == {WHOLE: range(4, 704)}
        assert (await writer.append([])).sequences == {}
    async with EventLogWriter.open(path) as writer:
        assert (await writer.append(numbered(1))).sequences == {WHOLE: range(704, 705)}
    async with EventLog.open(path) as log:
        assert [x.sequence for x in await whole(log)] == list(range(1, 705))


async def test_an_append_is_on_the_disk_when_it_returns_unless_told_otherwise(
    path: Path,
) -> None:
    async with EventLogWriter.open(path) as writer:
        rows = await writer._records.execute_fetchall("pragma synchronous")
    assert [*map(tuple, rows)] == [(FULL,)]


async def test_a_log_that_nothing_is_appended_to_is_not_read_to_find_that_out(
    path: Path,
) -> None:
    statements: list[str] = []
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        whole = FeedRange(id=WHOLE)
        end = {whole: await log.start(whole, "now")}
        connections = await log._brokers.connections(log._catalog, 1)
        await connections.made[0].set_trace_callback(statements.append)
        for expected in (True, False, False):
            statements.clear()
            assert await log.news(end) == []
            assert any("partitions" in x for x in statements) == expected
        await writer.append(numbered(1))
        assert await log.news(end) == [WHOLE]


async def test_a_page_of_large_changes_holds_fewer_of_them(path: Path) -> None:
    body = b"x" * 1_000_000
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.append([Record(key="k", body=body)] * 20)
        page = await log.read(
            FeedRange(id=WHOLE), await log.start(FeedRange(id=WHOLE), "beginning"), 1000
        )
        assert len(page.changes) == 9  # the first, and 8 MiB more
        assert len(await whole(log)) == 20


async def test_a_second_writer_is_told_who_writes(path: Path) -> None:
    async with EventLogWriter.open(path) as writer:
        with pytest.raises(FeedUnavailable, match=rf"by process {os.getpid()} "):
            async with EventLogWriter.open(path):
                pass
        await writer.append(numbered(1))
    async with EventLogWriter.open(path):  # the first is gone, and so is its lock
        pass


async def test_appends_of_many_tasks_are_all_there_each_batch_in_one_piece(path: Path) -> None:
    async with EventLogWriter.open(path, synchronous="off") as writer:
        batches = [numbered(10, n) for n in range(0, 500, 10)]
        done = await asyncio.gather(*(writer.append(x) for x in batches))
    async with EventLog.open(path) as log:
        bodies = [x.body for x in await whole(log)]
    for batch, appended in zip(batches, done, strict=True):
        (got,) = appended.sequences.values()
        assert [bodies[n - 1] for n in got] == [x.body for x in batch]
    assert len(bodies) == 500


async def test_an_append_that_is_cancelled_leaves_a_whole_batch_or_none(path: Path) -> None:
    async with EventLogWriter.open(path) as writer:
        for turns in range(40):
            task = asyncio.ensure_future(writer.append(numbered(10)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await writer.append(numbered(10))
    async with EventLog.open(path) as log:
        bodies = [int(x.body) for x in await whole(log)]
    assert bodies == list(range(10)) * (len(bodies) // 10)


async def test_a_full_disk_loses_nothing_acknowledged_and_can_be_tried_again(
    path: Path,
) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.append(numbered(300))
        ((pages,),) = await writer._records.execute_fetchall("PRAGMA page_count")
        await writer._records.execute_fetchall(f"PRAGMA max_page_count = {pages + 4}")
        large = [Record(key="k", body=b"x" * 100_000)]
        with pytest.raises(FeedUnavailable, match=r"full.*make room, then append again"):
            await writer.append([*numbered(300, 300), *large])
        assert len(await whole(log)) == 300
        await writer._records.execute_fetchall("PRAGMA max_page_count = 1000000")
        await writer.append(numbered(300, 300))
        assert [int(x.body) for x in await whole(log)] == list(range(600))


async def test_a_batch_with_one_record_that_cannot_be_stored_is_refused_whole(
    path: Path,
) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        for bad in (Record(key="\ud83e"), Record(key="k", id="\ud83e")):
            with pytest.raises(FeedRefused, match="surrogate"):
                await writer.append([*numbered(5), bad])
        assert await whole(log) == []
        assert (await writer.append(numbered(1))).sequences == {WHOLE: range(1, 2)}


async def test_between_the_two_writes_of_a_succession_everyone_waits(path: Path) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.append(numbered(10))
        records = sqlite3.connect(path / "brokers/1/records.db")
        records.execute("UPDATE partitions SET closed = 1")
        records.commit()
        records.close()
        with pytest.raises(FeedUnavailable, match="append again"):
            await writer.append(numbered(1))
        assert len(await whole(log)) == 10


async def test_a_log_recreated_refuses_positions_of_the_old_one(path: Path) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.append(numbered(5))
        old = await log.start(FeedRange(id=WHOLE), "now")
        shutil.rmtree(path)
        await create_log(path, parts=1)
        with pytest.raises(FeedRefused, match="recreated while it was open"):
            await log.ranges()
    async with EventLog.open(path) as log:
        with pytest.raises(FeedRefused, match="Reset the leases"):
            await log.read(FeedRange(id=WHOLE), old, 10)


async def test_what_is_no_log_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / "catalog.db").write_text("no database at all " * 100)
    (tmp_path / "foreign").mkdir()
    sqlite3.connect(tmp_path / "foreign" / "catalog.db").close()
    for name, advice in {
        "missing": "make one with: changefeed produce",
        "empty": "Give the directory of a log",
        "file": "Give the directory of a log",
        "garbage": "restore its directory",
        "foreign": "does not look like an event log",
    }.items():
        with pytest.raises(FeedRefused, match=advice):
            async with open_feed(f"eventlog:{tmp_path / name}"):
                pass
        with pytest.raises(FeedRefused, match=advice):
            async with EventLogWriter.open(tmp_path / name):
                pass


@pytest.mark.parametrize("file", ["catalog.db", "brokers/1/records.db"])
@pytest.mark.parametrize(
    ("number", "advice"), [(FORMAT - 1, "create the log again"), (FORMAT + 1, "upgrade")]
)
async def test_a_log_of_another_format_is_refused_with_advice_and_left_as_it_is(
    path: Path, file: str, number: int, advice: str
) -> None:
    with closing(sqlite3.connect(path / file, isolation_level=None)) as connection:
        connection.execute("UPDATE log SET format = ?", (number,))
    files = (path / "catalog.db", path / "brokers/1/records.db")
    before = [x.read_bytes() for x in files]
    await everyone_is_refused(path, rf"format {number}, .* format {FORMAT} only: {advice}")
    assert [x.read_bytes() for x in files] == before


async def test_records_that_belong_to_another_log_are_refused(
    path: Path, tmp_path: Path
) -> None:
    await create_log(tmp_path / "other", parts=1)
    shutil.copy(tmp_path / "other/brokers/1/records.db", path / "brokers/1/records.db")
    await everyone_is_refused(path, "another log")


async def test_records_of_a_broker_that_are_missing_are_named(path: Path) -> None:
    (path / "brokers/1/records.db").unlink()
    await everyone_is_refused(path, "brokers/1/records.db is missing: .*Restore")


@pytest.mark.parametrize("by", ["deleted", "replaced"])
async def test_records_that_go_under_an_open_log_are_noticed_by_who_writes_and_who_reads(
    path: Path, by: str
) -> None:
    records = path / "brokers/1/records.db"
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.append(numbered(1))
        copy = path / "copy"
        shutil.copy(records, copy)
        records.unlink()
        if by == "replaced":
            copy.rename(records)
        with pytest.raises(FeedRefused, match=f"records.db was {by} while it was open"):
            await writer.append(numbered(1))
        with pytest.raises(FeedRefused, match=f"records.db was {by} while it was open"):
            await log.ranges()


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_log_of_writes_that_was_deleted_is_noticed_by_who_writes_and_who_reads(
    path: Path, end: str
) -> None:
    records = path / "brokers/1/records.db"
    async with EventLog.open(path) as log:  # at rest: nothing lies beside the file yet
        async with EventLogWriter.open(path) as writer:
            await writer.append(numbered(1))
        async with EventLogWriter.open(path) as writer:
            await writer.append(numbered(1))
            assert await log.ranges()
            records.with_name(f"records.db{end}").unlink()
            with pytest.raises(FeedRefused, match=f"records.db{end} was deleted while it was"):
                await writer.append(numbered(1))
            with pytest.raises(FeedRefused, match=f"records.db{end} was deleted while it was"):
                await log.ranges()


@pytest.mark.parametrize("by", ["another log's", "an older copy"])
async def test_records_overwritten_in_their_place_end_who_writes_and_who_reads(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(open_database, "_LOOK_EVERY", 0.0)
    records = path / "brokers/1/records.db"
    copy = tmp_path / "copy.db"
    shutil.copy(records, copy)
    if by == "another log's":
        other = tmp_path / "other"
        await create_log(other)
        async with EventLogWriter.open(other) as writer:
            await writer.append(numbered(100))
        copy = other / "brokers/1/records.db"
    async with EventLogWriter.open(path) as writer:
        await writer.append(numbered(1))
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        assert await log.ranges()
        place = records.stat().st_ino
        shutil.copyfile(copy, records)
        assert records.stat().st_ino == place
        with pytest.raises(FeedRefused, match=r"records.db was overwritten while it was open"):
            await log.ranges()
        with pytest.raises(FeedRefused, match=r"records.db (was overwritten|does not look)"):
            await writer.append(numbered(1))


@pytest.fixture
def read_only(path: Path, tmp_path: Path) -> Iterator[Path]:
    """The log on a file system that takes no writes."""
    with small_disk_at(tmp_path / "mounted", "100m") as mounted:
        shutil.copytree(path, mounted / "log")
        subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
        yield mounted / "log"


async def test_a_directory_that_takes_no_writes_is_named_with_advice(read_only: Path) -> None:
    with pytest.raises(FeedRefused, match=r"writer.lock cannot be written: .*Give this user"):
        async with EventLogWriter.open(read_only):
            pass
    with pytest.raises(FeedRefused, match=r"records.db: .*Readers must be able to, too"):
        async with EventLog.open(read_only) as log:
            await log.start(FeedRange(id=WHOLE), "now")
    with pytest.raises(FeedRefused, match=r"no event log can be made at .*Read-only"):
        await create_log(read_only.parent / "new")


async def test_a_log_is_never_made_over_something_else(path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    await create_log(tmp_path / "empty")
    for taken in (path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FeedRefused, match="no event log can be made"):
            await create_log(taken)
    with pytest.raises(FeedRefused, match="1 to 4096 parts"):
        await create_log(tmp_path / "none", parts=0)
    left = await asyncio.to_thread(lambda: {x.name for x in tmp_path.iterdir()})
    assert left == {"log", "empty", "file"}


async def test_of_two_that_make_the_same_log_one_wins(tmp_path: Path) -> None:
    done = await asyncio.gather(
        *(create_log(tmp_path / "log", parts=2) for _ in range(4)), return_exceptions=True
    )
    assert sorted(type(x).__name__ for x in done) == ["FeedRefused"] * 3 + ["NoneType"]
    async with EventLog.open(tmp_path / "log") as log:
        assert len(await log.ranges()) == 2


async def test_a_directory_name_may_hold_any_sign(tmp_path: Path) -> None:
    odd = tmp_path / "a b?c#d%20é"
    await create_log(odd, parts=1)
    async with EventLogWriter.open(odd) as writer, open_feed(f"eventlog:{odd}") as log:
        await writer.append(numbered(3))
        assert len(await whole(log)) == 3
