"""Fleets of real processes to which bad things happen, and the history of what they did.

Every process appends what it is handed to one file (``tests.support.recorder``), and
``tests.support.history`` knows what must hold of that, whatever has happened. The trouble
begins when every host delivers, and enough is left for it to meet them at it.
"""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from pathlib import Path

import pytest

from changefeed.feeds.eventlog import EventLogWriter, Record
from tests.support import recorder
from tests.support.commands import PATIENCE, QUICK, Running, a_log_of, owners, running
from tests.support.disks import small_disk_at
from tests.support.history import History, read_history, repeated, violations

pytestmark = pytest.mark.real_time

FIRST, CHANGES, PARTS, PAGE = 80, 640, 4, 20
APPENDED = {f"key-{k}": range(k, CHANGES, 50) for k in range(50)}
CRASH = 2 * PAGE  # the batch in hand, and the one before it, which may be unwritten yet
FENCE = 1.5
RUN = (
    "run",
    "--feed=eventlog:log",
    "--leases=sqlite:kept/leases.db",
    *QUICK,
    f"--set=feed.page_size={PAGE}",
    f"--set=observer.max_unacknowledged={PAGE}",
    "--set=web.enabled=false",
)
SHORT = (
    "--set=leases.expiration=2",
    "--set=leases.renew_interval=0.3",
    "--set=leases.fence_margin=0.5",
)
ROOM = "--set=observer.max_unacknowledged=10000"
"""Enough to go on for long without checkpoints."""
LONG = ("--set=leases.expiration=20",)
"""Leases that nobody loses, however busy the machine is."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    a_log_of(FIRST, folder, parts=PARTS)
    shutil.copy(recorder.__file__, folder / "recorder.py")
    (folder / "kept").mkdir()
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A folder with a log of a few changes in 4 ranges, which nobody has read yet."""
    return Path(shutil.copytree(made, tmp_path / "place"))


def host(
    name: str, place: Path, *more: str, pace: float = 0.015
) -> AbstractAsyncContextManager[Running]:
    """Run a host whose observer takes ``pace`` seconds for each change."""
    observer = ("--observer=recorder:Recorder", f"--option=pace={pace}")
    return running(*RUN, *(more or SHORT), f"--name={name}", *observer, cwd=place)


async def append(place: Path, first: int, end: int) -> None:
    records = [Record(key=f"key-{n % 50}", body=b'{"n": %d}' % n) for n in range(first, end)]
    async with EventLogWriter.open(place / "log") as writer:
        await writer.append(records)


async def append_the_rest(place: Path) -> None:
    """Append as many changes as each range takes some seconds for."""
    await append(place, FIRST, CHANGES)


@asynccontextmanager
async def anna_and_ben(
    place: Path, *more: str, pace: float = 0.015
) -> AsyncIterator[tuple[Running, Running]]:
    """Run two hosts; begin when each has two ranges, and delivers what was just appended."""
    async with (
        host("anna", place, *more, pace=pace) as anna,
        host("ben", place, *more, pace=pace) as ben,
    ):
        await anna.reaches(lambda: owned_by(place) == {"anna": 2, "ben": 2})
        await append_the_rest(place)
        await ben.reaches(lambda: ranges_since(place, FIRST) == PARTS)
        yield anna, ben


def ranges_since(place: Path, lines: int) -> int:
    """Return in how many ranges anything was delivered after so many lines of history."""
    return len({x.range_id for x in handed(place)[lines:]})


def owned_by(place: Path) -> dict[str | None, int]:
    """Return how many leases each host owns; nothing before there are any."""
    if not (place / "kept" / "leases.db").exists():
        return {}
    try:
        found = owners(place / "kept")
    except sqlite3.OperationalError:  # the table is not there yet
        return {}
    return {name: found.count(name) for name in found}


def handed(place: Path) -> History:
    return read_history(place / "handed.jsonl")


async def until_handed(host: Running, place: Path, count: int = CHANGES) -> None:
    """Wait until so many different changes were handed to anybody."""
    await host.reaches(lambda: len({(x.range_id, x.sequence) for x in handed(place)}) >= count)


async def stop(*hosts: Running) -> None:
    """SIGTERM, and an orderly end."""
    for each in hosts:
        each.process.send_signal(signal.SIGTERM)
    assert [await each.ends() for each in hosts] == [0] * len(hosts)


# Processes


async def test_the_ranges_of_a_killed_host_go_on_elsewhere(place: Path) -> None:
    async with anna_and_ben(place) as (anna, ben):
        anna.process.kill()
        await until_handed(ben, place)
        await stop(ben)
    assert owned_by(place) == {None: PARTS}
    assert violations(handed(place), APPENDED, repeats=CRASH) == []


async def test_a_fleet_that_was_killed_as_a_whole_goes_on_where_it_was(place: Path) -> None:
    async with anna_and_ben(place) as (anna, ben):
        for each in (anna, ben):
            each.process.kill()
            await each.ends()
        before = handed(place)
        async with host("anna", place) as again:
            await until_handed(again, place)
            await stop(again)
    history = handed(place)
    assert violations(history, APPENDED, repeats=CRASH) == []
    assert repeated(history) <= PARTS * CRASH
    assert history[: len(before)] == before


async def test_a_frozen_host_that_wakes_up_delivers_nothing_under_a_lease_that_is_over(
    place: Path,
) -> None:
    async with anna_and_ben(place, pace=0.02) as (anna, ben):
        anna.process.send_signal(signal.SIGSTOP)
        frozen = len(handed(place))
        await ben.reaches(lambda: owned_by(place) == {"ben": PARTS})
        await ben.reaches(lambda: len({x.range_id for x in handed(place)[frozen:]}) == PARTS)
        anna.process.send_signal(signal.SIGCONT)
        await anna.says('"event": "lease.lost"', times=2)
        await until_handed(ben, place)
        await stop(anna, ben)
    assert owned_by(place) == {None: PARTS}
    assert violations(handed(place), APPENDED, repeats=CRASH) == []


async def test_a_frozen_host_whose_name_was_taken_meanwhile_ends_and_says_why(
    place: Path,
) -> None:
    async with host("anna", place) as first:
        await first.reaches(lambda: owned_by(place) == {"anna": PARTS})
        await append_the_rest(place)
        await until_handed(first, place, FIRST + 100)
        first.process.send_signal(signal.SIGSTOP)
        fenced = asyncio.create_task(asyncio.sleep(FENCE + 0.1))
        await asyncio.sleep(0.1)
        frozen = len(handed(place))
        async with host("anna", place) as second:
            await second.says('"event": "host.waiting"')
            await second.reaches(lambda: ranges_since(place, frozen) == PARTS)
            await fenced
            first.process.send_signal(signal.SIGCONT)
            assert await first.ends() == 2
            await until_handed(second, place)
            await stop(second)
    assert "another living process runs as host 'anna'" in first.said
    assert "Traceback" not in first.said
    assert len({x.pid for x in handed(place)}) == 2
    assert violations(handed(place), APPENDED, repeats=CRASH) == []


async def test_a_rolling_restart_delivers_nothing_twice(place: Path) -> None:
    async with AsyncExitStack() as all_of_them:

        async def start(name: str) -> Running:
            return await all_of_them.enter_async_context(host(name, place, *LONG, pace=0.03))

        fleet = {name: await start(name) for name in ("anna", "ben")}
        await fleet["anna"].reaches(lambda: owned_by(place) == {"anna": 2, "ben": 2})
        third = (CHANGES - FIRST) // 3
        await append(place, FIRST, FIRST + third)
        for name, first in (("anna", FIRST + third), ("ben", FIRST + 2 * third)):
            await fleet[name].reaches(lambda: ranges_since(place, FIRST) == PARTS)
            await stop(fleet[name])
            fleet[name] = await start(name)
            await fleet[name].reaches(lambda: owned_by(place) == {"anna": 2, "ben": 2})
            await append(place, first, first + third if name == "anna" else CHANGES)
        await until_handed(fleet["anna"], place)
        await stop(*fleet.values())
    assert len({x.pid for x in handed(place)}) == 4
    assert violations(handed(place), APPENDED, repeats=0) == []


# The file with the leases


@contextmanager
def locked(kept: Path) -> Iterator[None]:
    """Write to it for as long as the block lasts."""
    with closing(sqlite3.connect(kept / "leases.db", timeout=PATIENCE)) as other:
        other.execute("begin exclusive")
        yield
        other.rollback()


@contextmanager
def unwritable(kept: Path) -> Iterator[None]:
    """Take the right to write from everyone, root included, where the system can."""
    path = str(kept / "leases.db-wal")
    if not done("chattr", "+i", path):
        pytest.skip("files cannot be made immutable here")
    try:
        yield
    finally:
        assert done("chattr", "-i", path)


@contextmanager
def full(kept: Path) -> Iterator[None]:
    """Fill the disk with something else, and what SQLite can give back of its log of writes."""
    ballast = kept / "ballast"
    path = kept / "leases.db"
    with (
        ballast.open("wb", buffering=0) as file,
        closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as other,
    ):
        for _ in range(20):  # hosts write meanwhile
            other.execute("pragma wal_checkpoint(truncate)")
            room = os.statvfs(kept)
            file.write(bytes(room.f_bavail * room.f_frsize))
    try:
        yield
    finally:
        ballast.unlink()


def done(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def small_disk(place: Path) -> Iterator[None]:
    """Keep the leases on a disk of 4 MiB."""
    with small_disk_at(place / "kept", "4m"):
        yield


Trouble = Callable[[Path], AbstractContextManager[None]]


async def lives_through(trouble: Trouble, place: Path, says: str) -> None:
    """Let a fleet live through trouble with its leases for longer than they last."""
    pace = 0.03
    async with anna_and_ben(place, *SHORT, ROOM, pace=pace) as (anna, ben):
        with trouble(place / "kept"):
            await asyncio.sleep(FENCE + 0.5)
            fenced = handed(place)
            await asyncio.sleep(1.5)
            assert handed(place) == fenced  # nobody may act on a lease by now
            for each in (anna, ben):
                await each.says(says)
        await until_handed(ben, place)
        await stop(anna, ben)
    assert len(fenced) < CHANGES  # it met them at it
    assert owned_by(place) == {None: PARTS}
    until_the_fence = round(FENCE / pace)
    assert violations(handed(place), APPENDED, repeats=until_the_fence + CRASH) == []


async def test_a_lock_that_lasts_longer_than_the_leases_stops_all_and_loses_nothing(
    place: Path,
) -> None:
    await lives_through(locked, place, "the lease container did not answer")


async def test_a_file_that_cannot_be_written_stops_all_and_loses_nothing(place: Path) -> None:
    await lives_through(unwritable, place, "the disk did not answer")


@pytest.mark.usefixtures("small_disk")
async def test_a_full_disk_stops_all_and_loses_nothing(place: Path) -> None:
    await lives_through(full, place, "make room on the disk")


async def test_a_lock_that_lasts_less_than_the_leases_costs_nothing(place: Path) -> None:
    async with anna_and_ben(place, *LONG) as (anna, ben):
        with locked(place / "kept"):
            await asyncio.sleep(1)
        await until_handed(ben, place)
        await stop(anna, ben)
    assert anna.events("lease.lost") == ben.events("lease.lost") == []
    assert violations(handed(place), APPENDED, repeats=0) == []


async def test_a_damaged_lease_ends_the_host_that_reads_it_and_once_mended_nothing_is_lost(
    place: Path,
) -> None:
    def write(statement: str) -> None:
        with closing(sqlite3.connect(place / "kept" / "leases.db")) as leases, leases:
            leases.execute(statement)

    async with host("anna", place) as anna:
        await anna.reaches(lambda: owned_by(place) == {"anna": PARTS})
        await append_the_rest(place)
        await anna.reaches(lambda: ranges_since(place, FIRST) == PARTS)
        write("update leases set owner = x'ff' where range_id like '%.p02.%'")
        assert await anna.ends() == 2
    async with host("ben", place) as ben:
        assert await ben.ends() == 2
    for said in (anna.said, ben.said):
        assert "p02.v00-ff' of table leases cannot be read" in said
        assert "Mend it, or delete it" in said
        assert "Traceback" not in said
    assert len(handed(place)) < CHANGES  # it met it at it
    write("update leases set owner = null where range_id like '%.p02.%'")
    async with host("ben", place) as ben:
        await until_handed(ben, place)
        await stop(ben)
    assert violations(handed(place), APPENDED, repeats=CRASH) == []


@pytest.mark.parametrize("gone", [("-wal", "-shm"), ("-wal",), ("-shm",)], ids="".join)
async def test_a_host_whose_log_of_writes_was_deleted_ends_and_the_next_one_goes_on(
    place: Path, gone: Sequence[str]
) -> None:
    async with host("anna", place) as anna:
        await anna.reaches(lambda: owned_by(place) == {"anna": PARTS})
        await append_the_rest(place)
        await anna.reaches(lambda: ranges_since(place, FIRST) == PARTS)
        for end in gone:
            (place / "kept" / f"leases.db{end}").unlink()
        assert await anna.ends() == 2
    assert f"leases.db{gone[0]} was deleted while hosts run" in anna.said
    assert "Traceback" not in anna.said
    assert len(handed(place)) < CHANGES  # it met it at it
    async with host("ben", place) as ben:
        await until_handed(ben, place)
        await stop(ben)
    assert violations(handed(place), APPENDED, repeats=CRASH) == []
