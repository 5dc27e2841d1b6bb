"""The event log with real processes: killed ones, second writers, readers beside a writer."""

import asyncio
import re
import sys
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import Feed
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record
from tests.support.processes import Running, ended, started

ROOT = Path(__file__).parents[2]
BATCH = 500

PRODUCER = """
import asyncio, sys
from changefeed.log.records import Record
from changefeed.log.directory.writer import EventLogWriter

async def produce():
    async with EventLogWriter.open(sys.argv[1]) as writer:
        print("writing", flush=True)
        for batch in range(10**9):
            await writer.append(
                [Record(key=f"key-{n}", body=b"%d" % batch) for n in range(500)]
            )
            print(batch, flush=True)

asyncio.run(produce())
"""

READER = """
import asyncio, sys
from changefeed.log.directory.feed import EventLog

async def read():
    async with EventLog.open(sys.argv[1]) as log:
        count, after = 0, {}
        while count < int(sys.argv[2]):
            for r in await log.ranges():
                start = after.get(r.id) or await log.start(r, "beginning")
                page = await log.read(r, start, 1000)
                begin, end = (int(x.split("/")[1]) for x in (start, page.position))
                assert [x.sequence for x in page.changes] == [*range(begin + 1, end + 1)]
                count, after[r.id] = count + len(page.changes), page.position
        print(count, flush=True)

asyncio.run(read())
"""


def running(
    program: str, *arguments: object, cwd: Path
) -> AbstractAsyncContextManager[Running]:
    return started(sys.executable, "-c", program, *map(str, arguments), cwd=cwd)


async def test_nothing_is_lost_or_torn_by_a_thousand_kills() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        program = (sys.executable, "-m", "tests.support.killed_writers")
        writers = await asyncio.create_subprocess_exec(
            *program, memory + "/log", "1000", "7", cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await writers.communicate()
    assert writers.returncode == 0
    assert re.fullmatch(rb"1000 kills, \d+ batches acknowledged, [1-9]\d* runs\n", said), said


async def bodies_by_key(feed: Feed) -> dict[str, list[int]]:
    """Read everything; sequences must be dense."""
    found: dict[str, list[int]] = {}
    for r in await feed.ranges():
        last, after = 0, await feed.start(r, "beginning")
        while (page := await feed.read(r, after, 1000)).changes:
            for change in page.changes:
                assert change.sequence == last + 1
                last = change.sequence
                found.setdefault(change.key, []).append(int(change.body))
            after = page.position
    return found


async def test_what_was_acknowledged_outlives_a_killed_writer_and_no_batch_is_torn(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    await create_log(path, parts=3)
    async with running(PRODUCER, path, cwd=tmp_path) as producer:
        await producer.prints(r"\n20\n")
        await asyncio.sleep(Random().random() / 40)  # to another place in a batch
        producer.process.kill()
        await producer.ends()
    acknowledged = int(producer.printed.split()[-1])

    async with EventLog.open(path) as log:  # with no writer there to mend anything
        found = await bodies_by_key(log)
    (batches,) = {tuple(x) for x in found.values()}  # every key got the same ones
    assert len(found) == BATCH
    assert batches in (tuple(range(acknowledged + 1)), tuple(range(acknowledged + 2)))

    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        await writer.append([Record(key=f"key-{n}", body=b"-1") for n in range(BATCH)])
        assert {tuple(x) for x in (await bodies_by_key(log)).values()} == {(*batches, -1)}


async def test_a_second_process_that_would_write_is_told_which_one_does(tmp_path: Path) -> None:
    await create_log(tmp_path / "log")
    async with running(PRODUCER, tmp_path / "log", cwd=tmp_path) as producer:
        await producer.prints("writing")
        with pytest.raises(FeedUnavailable, match=f"by process {producer.process.pid} "):
            async with EventLogWriter.open(tmp_path / "log"):
                pass


async def test_several_processes_read_all_that_another_one_writes_meanwhile(
    tmp_path: Path,
) -> None:
    path, wanted = tmp_path / "log", 40 * BATCH
    await create_log(path, parts=3)
    async with (
        running(READER, path, wanted, cwd=tmp_path) as first,
        running(READER, path, wanted, cwd=tmp_path) as second,
    ):
        async with EventLogWriter.open(path) as writer:
            for batch in range(40):
                body = b"%d" % batch
                await writer.append([Record(key=f"k{n}", body=body) for n in range(BATCH)])
        assert [await first.ends(), await second.ends()] == [0, 0]
        assert [first.printed, second.printed] == [f"{wanted}\n"] * 2


DENIED = """
import asyncio, os, sys
from changefeed.feeds.errors import FeedRefused
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter

async def try_to(attempt):
    try:
        await attempt
        print("done", flush=True)
    except FeedRefused as refused:
        print(refused, flush=True)

async def enter(manager):
    async with manager:
        pass

async def main():
    home = sys.argv[1]
    await try_to(enter(EventLog.open(home)))  # and all modules are loaded now
    if os.geteuid() == 0:
        os.setuid(65534)  # root may do everything: be nobody
    await try_to(enter(EventLogWriter.open(home)))
    await try_to(create_log(home + "/other"))
    await try_to(enter(EventLog.open(home + "/locked/log")))

asyncio.run(main())
"""


async def test_a_user_without_rights_is_told_what_is_missing(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: nobody may look into that
        home = Path(folder)
        await create_log(home, parts=1)
        (home / "locked").mkdir(mode=0o000)
        folders = [home]
        for x in folders:
            x.chmod(0o555)
        try:
            denied = ended(sys.executable, "-c", DENIED, home, cwd=tmp_path)
            opened, writing, making, reading = denied.stdout.splitlines()
            assert opened == "done"
            assert "Give this user the right to" in writing
            assert "Take a directory that this user may make" in making
            assert "Give this user the right to read" in reading
        finally:
            for x in folders:
                x.chmod(0o755)
