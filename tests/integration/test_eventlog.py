"""The event log over real files, in one process."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import Change, Feed, FeedRange, RangeId
from changefeed.log.brokers.run_core import open_core
from changefeed.log.catalog.catalog import FORMAT
from changefeed.log.catalog.transitions import with_split
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record
from changefeed.log.stores.local_store import LocalStore
from changefeed.runtime.errors import StoreUnavailable
from changefeed.testing.feed_harness import everything
from tests.support.damaged_logs import everyone_is_refused
from tests.support.disks import small_disk_at
from tests.support.processes import PATIENCE

WHOLE = RangeId("e1.p01.v00-ff")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log with one part, so that all keys are in one range."""
    await create_log(tmp_path / "log", parts=1)
    return tmp_path / "log"


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
    assert [x.id for x in ranges] == [f"e1.p{n:02}.v00-ff" for n in range(1, 13)]
    assert (ranges[3].low, ranges[3].high, ranges[3].parents) == ("p04.v000", "p04.v100", ())


async def test_what_was_taken_is_durable_after_a_flush_and_at_the_end(path: Path) -> None:
    async with EventLogWriter.open(path, keeps_up=False) as writer, EventLog.open(path) as log:
        sent = [await writer.submit(numbered(10_001)) for _ in range(2)]  # a frame each
        await writer.flush()
        assert all(x.done() for x in sent)
        (await writer.submit(numbered(1))).cancel()  # nobody waits for it
    with pytest.raises(FeedUnavailable, match="was closed"):
        await writer.submit(numbered(1))
    assert len(await whole(log)) == 20_003


async def test_a_page_of_large_changes_holds_fewer_of_them(path: Path) -> None:
    body = b"x" * 1_000_000
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        for _ in range(20):
            await writer.send_many([Record(key="k", body=body)])
        page = await log.read(
            FeedRange(id=WHOLE), await log.start(FeedRange(id=WHOLE), "beginning"), 1000
        )
        assert len(page.changes) == 2  # of a MiB
        assert len(await whole(log)) == 20


async def test_a_second_writer_is_told_who_writes(path: Path) -> None:
    async with EventLogWriter.open(path) as writer:
        with pytest.raises(FeedUnavailable, match=rf"by process {os.getpid()} "):
            async with EventLogWriter.open(path):
                pass
    async with EventLogWriter.open(path) as writer:  # the first is gone, and so is its lock
        await writer.send_many(numbered(1))


async def test_after_a_sync_that_failed_the_log_goes_on_and_the_next_writer_begins_an_era(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.send_many(numbered(10))
        with monkeypatch.context() as disk:
            disk.setattr("os.fdatasync", fails)
            await writer.send_many(numbered(10, 10))  # as a file of its own
        await writer.send_many(numbered(10, 20))
        assert [int(x.body) for x in await whole(log)] == list(range(30))
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.send_many(numbered(10, 30))
        assert len(await everything(log, FeedRange(id=WHOLE))) == 30
        assert [int(x.body) for x in await whole(log, RangeId("e2.p01.v00-ff"))] == list(
            range(30, 40)
        )


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_frame_whose_answer_was_lost_is_looked_for_before_the_next_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ours: bool
) -> None:
    create = LocalStore.create

    async def unanswered(store: LocalStore, key: str, data: bytes) -> bool:
        await create(store, key, data if is_ours else b"another's")
        raise StoreUnavailable("the answer was lost")

    async with EventLogWriter.open(path, keeps_up=False) as writer, EventLog.open(path) as log:
        monkeypatch.setattr(LocalStore, "create", unanswered)
        with pytest.raises(FeedUnavailable):
            await writer.send_many(numbered(1))
        monkeypatch.undo()
        if is_ours:
            await writer.send_many(numbered(1, 1))
            assert [int(x.body) for x in await whole(log)] == [0, 1]
            return
        with pytest.raises(FeedRefused, match="another process has ended"):
            await writer.send_many(numbered(1))


@pytest.mark.parametrize("is_done", [True, False])
async def test_what_is_appended_once_an_era_did_not_begin_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    """Whichever call to the disk fails while it is to begin, and whether it was carried out."""
    call, count, calls, has_failed = LocalStore._call, 0, 0, True

    async def failing(self: LocalStore, act: Any, what: str) -> Any:
        nonlocal count
        count += 1
        found = await call(self, act, what) if count != calls or is_done else None
        if count == calls:
            raise StoreUnavailable("the disk does not answer")
        return found

    while has_failed:  # one call later each time
        calls, count = calls + 1, 0
        path = tmp_path / f"log-{calls}"
        await create_log(path, parts=1)
        async with EventLogWriter.open(path, keeps_up=False) as writer:
            await writer.send("k", 0)
            with monkeypatch.context() as fails, suppress(FeedUnavailable):
                fails.setattr(LocalStore, "_call", failing)
                await writer.begin_era(lambda x: with_split(x, "log"))
            has_failed, count = count >= calls, sys.maxsize // 2
            await writer.send("k", 1)
        async with EventLog.open(path) as log:
            found = [y.body for x in await log.ranges() for y in await everything(log, x)]
        assert found == [b"0", b"1"]
    assert calls > 10


async def test_a_batch_with_one_record_that_cannot_be_stored_is_refused_whole(
    path: Path,
) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        for bad in (Record(key="\ud83e"), Record(key="k", id="\ud83e")):
            with pytest.raises(FeedRefused, match="surrogate"):
                await writer.send_many([*numbered(5), bad])
        await writer.send_many(numbered(1))
        assert [x.sequence for x in await whole(log)] == [1]


async def test_a_log_recreated_refuses_positions_of_the_old_one(path: Path) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.send_many(numbered(5))
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
    for name, content in {"cluster.json": "{", "catalog.db": "SQLite"}.items():
        (tmp_path / name.partition(".")[2]).mkdir()
        (tmp_path / name.partition(".")[2] / name).write_text(content)
    for name, advice in {
        "missing": "make one with: changefeed produce",
        "empty": "Give the directory of a log",
        "file": "Give the directory of a log",
        "n" * 300: "Give this user the right to read it",
        "json": "none of a cluster",
        "db": "of an earlier version, in SQLite: read it with that version",
    }.items():
        with pytest.raises(FeedRefused, match=advice):
            async with open_feed(f"eventlog:{tmp_path / name}"):
                pass
        with pytest.raises(FeedRefused, match=advice):
            async with EventLogWriter.open(tmp_path / name):
                pass


@pytest.mark.parametrize(
    ("number", "advice"), [(FORMAT - 1, "begin anew"), (FORMAT + 1, "upgrade")]
)
async def test_a_log_of_another_format_is_refused_with_advice_and_left_as_it_is(
    path: Path, number: int, advice: str
) -> None:
    file = path / "cluster.json"
    file.write_text(file.read_text().replace(f":{FORMAT}", f":{number}"))
    before = file.read_bytes()
    await everyone_is_refused(path, rf"format {number}, .* format {FORMAT} only: {advice}")
    assert file.read_bytes() == before


async def _open_again_and_again(path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            async with EventLogWriter.open(path):
                await asyncio.sleep(0.05)


async def test_brokers_that_have_taken_a_log_over_are_named_to_who_would_write(
    path: Path,
) -> None:
    async with EventLogWriter.open(path) as writer:
        await writer.send_many(numbered(10))
    async with open_core(LocalStore(path), "broker-1") as core:
        with pytest.raises(FeedRefused, match=r"brokers (write|have taken)"):
            await _open_again_and_again(path)
        await core.wait_until_writing()
    async with EventLog.open(path) as log:
        assert len(await everything(log, FeedRange(id=WHOLE))) == 10
        assert [x.id for x in await log.ranges()] == [WHOLE, "e2.p01.v00-ff"]


@pytest.fixture
async def read_only(path: Path, tmp_path: Path) -> AsyncIterator[Path]:
    """A log of 20 changes on a file system that takes no writes."""
    async with EventLogWriter.open(path) as writer:
        await writer.send_many(numbered(20))
    with small_disk_at(tmp_path / "mounted", "100m") as mounted:
        shutil.copytree(path, mounted / "log")
        remount = ["mount", "-o", "remount,ro", str(mounted)]
        await asyncio.to_thread(subprocess.run, remount, check=True)
        yield mounted / "log"


async def test_a_copy_made_while_its_log_is_written_goes_on_by_itself(path: Path) -> None:
    copy = path.with_name("copy")
    async with EventLogWriter.open(path) as writer:
        await writer.send_many(numbered(10))
        shutil.copytree(path, copy)
        await writer.send_many(numbered(5, begin=10))
    async with EventLogWriter.open(copy) as writer:
        await writer.send_many(numbered(3, begin=20))
    for where, added in ((path, range(10, 15)), (copy, range(20, 23))):
        async with EventLog.open(where) as log:
            assert [int(x.body) for x in await whole(log)] == [*range(10), *added]


async def test_a_directory_that_takes_no_writes_is_read_and_not_written(
    read_only: Path,
) -> None:
    with pytest.raises((FeedRefused, FeedUnavailable), match=r"Mount it so that it can"):
        async with EventLogWriter.open(read_only):
            pass
    async with EventLog.open(read_only) as log:
        assert len(await whole(log)) == 20
    with pytest.raises(FeedRefused, match=r"no event log can be made at .*Read-only"):
        await create_log(read_only.parent / "new")


async def test_a_log_is_never_made_over_something_else(path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    await create_log(tmp_path / "empty")
    for taken in (path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FeedRefused):
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
        await writer.send_many(numbered(3))
        assert len(await whole(log)) == 3
