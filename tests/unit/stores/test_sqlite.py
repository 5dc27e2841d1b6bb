"""What is SQLite's own: the file, its errors, and readable columns."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.addresses import open_container, open_stores
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Incarnation
from changefeed.runtime import open_database
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from tests.support import make
from tests.support.disks import small_disk_at
from tests.support.processes import PATIENCE
from tests.support.sqlite_leases import SqliteLeases

pytestmark = pytest.mark.real_time

A = HostName("host a")
A1 = Incarnation("1")
R0 = RangeId("r0")
NEW = make.lease(at="c0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


async def test_both_stores_may_be_in_one_file(path: Path) -> None:
    place = f"sqlite:{path}"
    async with open_stores(place, place) as leases:
        lease = await leases.create(NEW)
        await leases.acquire(lease.taken_by(A, A1))
        assert rows(path, "select range_id, owner, epoch from ownership") == [("r0", A, 1)]
        found = rows(path, "select range_id, position, epoch from checkpoints")
        assert found == [("r0", "c0", 1)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 kB, less than SQLite's log of writes may grow to."""
    with small_disk_at(tmp_path / "disk", "600k") as disk:
        yield disk


async def test_leases_on_a_disk_that_was_full_recover_once_there_is_a_little_room(
    small_disk: Path,
) -> None:
    async def write_400_times(leases: SqliteLeases) -> None:
        """Write about 3 kB each time, of which only the last counts."""
        for n in range(400):
            lease = await leases.read(R0)
            assert lease is not None
            await leases.replace(lease.advanced_to(Position(f"{n}{'x' * 3000}")))

    ballast = small_disk / "ballast"
    await asyncio.to_thread(ballast.write_bytes, bytes(80_000))
    async with SqliteLeases(small_disk / "leases.db") as leases:
        await leases.create(NEW)
        with pytest.raises(StoreUnavailable, match="full; make room"):
            await write_400_times(leases)
        await asyncio.to_thread(ballast.unlink)
        await write_400_times(leases)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (sqlite3.SQLITE_IOERR_WRITE, "look at the system's log"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, "make room on the disk"),
        (sqlite3.SQLITE_NOMEM, "out of memory"),
    ],
)
async def test_an_error_of_the_disk_is_unavailable(path: Path, code: int, advice: str) -> None:
    def fail(_: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    async with SqliteLeases(path) as leases:
        lease = await leases.create(NEW)
        with pytest.raises(StoreUnavailable, match=f"disk I/O error; .*{advice}"):
            await leases._file.change(fail)
        assert (await leases.replace(lease.renewed())).renewals == 1


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
async def test_a_file_that_was_deleted_is_refused_by_hosts_that_use_it(
    path: Path, end: str
) -> None:
    async with SqliteLeases(path) as leases:
        async with SqliteLeases(path) as others:
            lease = await others.create(NEW)
        lease = await leases.replace(lease.renewed())  # others may come and go
        await asyncio.to_thread(path.with_name(f"leases.db{end}").unlink)
        with pytest.raises(StoreRefused, match=f"leases.db{end} was deleted"):
            await leases.replace(lease.renewed())
        with pytest.raises(StoreRefused):
            await leases.list()


@pytest.fixture
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_database, "_LOOK_EVERY", 0.0)


@pytest.mark.usefixtures("looks_each_time")
async def test_a_file_that_is_overwritten_in_its_place_ends_the_hosts_that_use_it(
    path: Path,
) -> None:
    other = path.with_suffix(".other")
    async with SqliteLeases(other) as others:
        for n in range(200):
            await others.create(make.lease(f"r{n}", at="c0"))
    async with SqliteLeases(path) as leases, SqliteLeases(path) as a_second_host:
        lease = await leases.create(NEW)
        for _ in range(30):
            lease = await leases.replace(lease.renewed())
        await asyncio.to_thread(shutil.copyfile, other, path)
        for call in (leases.replace(lease.renewed()), a_second_host.list()):
            with pytest.raises(StoreRefused, match="was overwritten"):
                await call


async def test_changes_that_come_together_share_a_transaction_but_not_a_refusal(
    path: Path,
) -> None:
    said: list[str] = []

    def refused(connection: sqlite3.Connection) -> None:
        connection.execute("delete from records")
        raise LeaseConflict(NEW, NEW)

    async with SqliteLeases(path) as leases:
        made = [await leases.create(make.lease(f"r{n}", at="c0")) for n in range(50)]
        await leases._file._run(lambda connection: connection.set_trace_callback(said.append))
        answers = await asyncio.gather(
            *(leases.replace(x.renewed()) for x in made[:25]),
            leases._file.change(refused),
            *(leases.replace(x.renewed()) for x in made[25:]),
            return_exceptions=True,
        )
        assert isinstance(answers.pop(25), LeaseConflict)
        found = [await leases.read(x.range_id) for x in made]
        assert [x and (x.renewals, x.stamp) for x in found] == [(1, None)] * 50
    assert said.count("commit") <= 2


async def test_a_change_is_the_only_writer_before_it_has_written_anything(path: Path) -> None:
    def another_writer(_: sqlite3.Connection) -> str:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("begin immediate")
            except sqlite3.OperationalError as error:
                return str(error)
        return "may write"

    async with SqliteLeases(path) as leases:
        assert await leases._file.change(another_writer) == "database is locked"


async def test_changes_are_written_though_every_task_is_cancelled(path: Path) -> None:
    async with SqliteLeases(path) as leases:
        lost = asyncio.ensure_future(leases.create(NEW))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([lost])
        assert lost.cancelled()
        async with asyncio.timeout(PATIENCE):
            await leases.create(make.lease("r1", at="c0"))
        assert await leases.read(NEW.range_id) is not None


async def test_who_gave_up_waiting_leaves_those_that_share_its_transaction_their_answers(
    path: Path,
) -> None:
    async with SqliteLeases(path) as leases:
        first, gave_up, shares = [
            asyncio.ensure_future(leases.create(make.lease(f"r{n}", at="c0"))) for n in range(3)
        ]
        await asyncio.sleep(0)  # the first is being written, the others are the next
        gave_up.cancel()
        async with asyncio.timeout(PATIENCE):
            assert (await first).range_id == "r0"
            assert (await shares).range_id == "r2"
        assert gave_up.cancelled()
        assert {x.range_id for x in await leases.list()} == {"r0", "r1", "r2"}


async def test_what_is_asked_for_before_closing_is_done(path: Path) -> None:
    async with SqliteLeases(path) as leases:
        lease = await leases.create(NEW)
        writes = [
            asyncio.ensure_future(leases.create(make.lease(f"r{n}", at="c0")))
            for n in range(1, 9)
        ]
        await asyncio.sleep(0)
    written = [lease, *[await x for x in writes]]
    async with SqliteLeases(path) as leases:
        assert [await leases.read(x.range_id) for x in written] == written
    assert rows(path, "pragma journal_mode") == [("wal",)]


@pytest.mark.parametrize(
    "make_it",
    [
        lambda path: path.write_text("these are not the leases you are looking for\n" * 100),
        Path.mkdir,
        os.mkfifo,
    ],
    ids=["text", "directory", "pipe"],
)
async def test_what_is_no_database_is_refused(
    path: Path, make_it: Callable[[Path], None]
) -> None:
    make_it(path)
    with pytest.raises(StoreRefused, match=str(path)):
        async with SqliteLeases(path):
            pass


@pytest.mark.parametrize("schema", [2, 4])
async def test_another_schema_is_refused(path: Path, schema: int) -> None:
    async with SqliteLeases(path) as leases:
        await leases.create(NEW)
    change(path, f"pragma user_version = {schema}")
    before = rows(path, "select * from sqlite_master join leases")
    with pytest.raises(StoreRefused, match=f"schema {schema}"):
        async with SqliteLeases(path):
            pass
    assert rows(path, "select * from sqlite_master join leases") == before


async def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match=r"x: File name too long; give it a shorter name$"):
        async with open_container(f"sqlite:{'x' * 5000}", OpenOptions(must_exist=True)):
            pass
    with pytest.raises(StoreRefused, match="nowhere"):
        async with SqliteLeases(tmp_path / "nowhere" / "leases.db"):
            pass
