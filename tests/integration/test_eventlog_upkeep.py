"""An event log that its writer looks after: compaction and retention, without brokers."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Change, FeedRange, RangeId
from changefeed.log.directory import writer as writing
from changefeed.log.directory.directory import COLLECTION, create_log, open_directory
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter, compact_log
from changefeed.log.records import Record
from changefeed.log.stores import local_store
from tests.support.processes import PATIENCE

WHOLE = FeedRange(id=RangeId("e1.p01.v00-ff"))
MUCH = 300


def record(n: int) -> Record:
    return Record(key=f"k{n % 7}", body=b"%06d" % n)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    await create_log(tmp_path / "log", parts=1)
    return tmp_path / "log"


async def write(path: Path, begin: int, end: int, *, keeps_up: bool = True) -> None:
    """Append one record after another, each in a frame of its own."""
    async with EventLogWriter.open(path, keeps_up=keeps_up) as writer:
        for n in range(begin, end):
            await writer.send_many([record(n)])


async def read(log: EventLog) -> Sequence[Change]:
    found: list[Change] = []
    after = await log.start(WHOLE, "beginning")
    while (page := await log.read(WHOLE, after, 100)).changes:
        found += page.changes
        after = page.position
    return found


def runs(path: Path) -> Sequence[Path]:
    return sorted(path.glob("compacted/*/*/*"))


async def test_a_writer_that_wrote_much_compacts_it_when_it_closes(path: Path) -> None:
    await write(path, 0, 10)
    assert not runs(path), "little is left to the next"
    await write(path, 10, MUCH)
    assert len(runs(path)) == 1
    assert not (path / "now").exists(), "nothing is kept by age"
    async with EventLog.open(path) as log:
        assert [x.body for x in await read(log)] == [record(n).body for n in range(MUCH)]


async def test_a_writer_compacts_while_it_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changefeed.log.directory.maintenance._EVERY", 0.05)
    monkeypatch.setattr("changefeed.log.directory.maintenance.COMPACTED_AT", 64)
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        count = 0
        async with asyncio.timeout(PATIENCE):
            while not runs(path):
                await writer.send_many([record(count)])
                count += 1
        assert [x.body for x in await read(log)] == [record(n).body for n in range(count)]


async def test_a_reader_that_has_frames_in_memory_goes_on_behind_the_run_that_they_became(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(path, 0, 2 * MUCH, keeps_up=False)
    async with EventLog.open(path) as log:
        assert len(await read(log)) == 2 * MUCH
        monkeypatch.setattr(writing, "_FRAMES_AT_CLOSE", 1)
        await write(path, 2 * MUCH, 2 * MUCH + 1)
        assert len(runs(path)) == 1
        found = [x.body for x in await read(log)]
    assert found == [record(n).body for n in range(2 * MUCH + 1)]


async def keep(path: Path, *, seconds: float | None = None, most: int | None = None) -> None:
    _, catalogs = await open_directory(path)
    await catalogs.retain(COLLECTION, seconds=seconds, bytes_=most)


async def test_a_log_that_is_to_keep_less_is_cut_by_its_writer_and_readers_are_told(
    path: Path,
) -> None:
    await write(path, 0, MUCH)
    async with EventLog.open(path) as log:
        begin = await log.start(WHOLE, "beginning")
        await keep(path, most=100)
        await write(path, MUCH, 2 * MUCH)
        left = await read(log)
        assert 0 < len(left) < 2 * MUCH
        assert left[-1].body == record(2 * MUCH - 1).body
        with pytest.raises(RangeRefused):
            await log.read(WHOLE, begin, 100)


async def test_compaction_ends_where_all_that_was_compacted_before_is_deleted(
    path: Path,
) -> None:
    await keep(path, most=0)
    for turn in (0, 1, 2):
        await write(path, turn * MUCH, (turn + 1) * MUCH, keeps_up=False)
        async with asyncio.timeout(10):
            assert (await compact_log(path)).objects >= MUCH


async def test_upkeep_says_once_that_the_disk_is_full_until_it_succeeds(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = {True: 0, False: 0}
    is_full, write = True, local_store._write_synced

    def write_if_there_is_room(place: Path, data: bytes) -> None:
        attempts[is_full] += 1
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(place, data)

    monkeypatch.setattr("changefeed.log.directory.maintenance._EVERY", 0.01)
    await keep(path, seconds=3600)
    monkeypatch.setattr(local_store, "_write_synced", write_if_there_is_room)
    async with EventLogWriter.open(path) as writer, asyncio.timeout(PATIENCE):
        for turn in (1, 2):
            for is_full in (True, False):
                goal = attempts[is_full] + 3
                while attempts[is_full] < goal:
                    await writer.send_many([record(1)])
            said = [x for x in caplog.records if x.levelname in ("WARNING", "ERROR")]
            assert ["Make room there" in vars(x)["msg"]["error"] for x in said] == [True] * turn
            assert not any(x.exc_info for x in said)


async def test_what_is_too_old_is_deleted_when_somebody_compacts(path: Path) -> None:
    await write(path, 0, MUCH)
    await asyncio.sleep(1.2)
    await keep(path, seconds=1)
    await compact_log(path)
    async with EventLog.open(path) as log:
        left = await read(log)
        assert left[0].sequence == 257, "what lies before the last run"
    await keep(path)
    await write(path, 0, 5)
    async with EventLog.open(path) as log:
        assert len(await read(log)) == len(left) + 5
