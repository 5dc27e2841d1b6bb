"""The event log with real processes: writers that are killed, and one without rights."""

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.log.directory.directory import create_log
from tests.support.disks import ext4_at
from tests.support.processes import ended, python

ROOT = Path(__file__).parents[2]


def outlives(writers: int, place: Path) -> None:
    """Kill so many writers of a log: some have written, and some have compacted."""
    program = (sys.executable, "-m", "tests.support.killed_writers")
    done = ended(*program, place / "log", str(writers), "7", cwd=ROOT, patience=3000)
    assert done.returncode == 0, done.stderr
    expected = rf"{writers} kills, [1-9]\d* batches acknowledged, [1-9]\d* runs\n"
    assert re.fullmatch(expected, done.stdout), done.stdout


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        yield Path(place)


def test_what_was_acknowledged_outlives_killed_writers_and_no_batch_is_torn(
    memory: Path,
) -> None:
    outlives(30, memory)


def test_nothing_is_lost_or_torn_by_a_thousand_kills_in_memory(memory: Path) -> None:
    outlives(1000, memory)


def test_nothing_is_lost_or_torn_by_a_thousand_kills_on_a_disk(tmp_path: Path) -> None:
    with ext4_at(tmp_path / "disk") as disk:
        outlives(1000, disk)


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
            denied = python(DENIED, home, cwd=tmp_path)
            opened, writing, making, reading = denied.stdout.splitlines()
            assert opened == "done"
            assert "Give this user the right to" in writing
            assert "Take a directory that this user may make" in making
            assert "Give this user the right to read" in reading
        finally:
            for x in folders:
                x.chmod(0o755)
