"""What becomes of a SQLite file that is open, and what is no news of it."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from changefeed.runtime.open_database import FileChange, LostFile, OpenDatabase

MARKS = "select id, n from marks"
WRITE = "insert into marks values ('more', 1)"


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    with closing(connected(path)) as made:
        made.execute("pragma journal_mode = wal")
        made.execute("create table marks (id text, n integer)")
        made.execute("insert into marks values ('one', 1)")
        made.execute("create table more as select zeroblob(9000)")
    return path


@pytest.fixture
def kept(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that stays open, and has read."""
    with closing(connected(path)) as connection:
        connection.execute("pragma data_version").fetchall()
        yield connection


def connected(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None)


def watched(path: Path, clock: FakeClock | None = None) -> OpenDatabase:
    file = OpenDatabase(path, MARKS, clock or FakeClock())
    file.watch_log()
    return file


def beside(path: Path, end: str) -> Path:
    return path.with_name(f"{path.name}{end}")


def in_another_process(path: Path, *statements: str, mode: str = "rw", end: str = "") -> None:
    program = f"""
import os, signal, sqlite3
other = sqlite3.connect({f"{path.as_uri()}?mode={mode}"!r}, uri=True, isolation_level=None)
for statement in {statements!r}:
    other.execute(statement).fetchall()
{end or "other.close()"}
"""
    subprocess.run([sys.executable, "-c", program], check=not end)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_log_of_writes_or_its_index_that_was_deleted_or_made_again_is_lost(
    path: Path, end: str
) -> None:
    file = watched(path)
    beside(path, end).unlink()
    assert file.lost() == LostFile(path=beside(path, end), became=FileChange.DELETED)
    assert str(file.lost()) == f"{path}{end} was deleted"
    in_another_process(path, WRITE, end="os._exit(0)")
    assert file.lost() == LostFile(path=beside(path, end), became=FileChange.REPLACED)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "statements",
    [
        (WRITE,),
        (WRITE, "pragma wal_checkpoint(passive)"),
        (WRITE, "pragma wal_checkpoint(restart)", WRITE),
        (WRITE, "pragma wal_checkpoint(truncate)"),
        (WRITE, "vacuum"),
        (WRITE, "pragma wal_autocheckpoint = 1", WRITE, WRITE),
    ],
    ids=["write", "checkpoint", "restart", "truncate", "vacuum", "small log"],
)
def test_what_other_connections_do_and_leave_loses_nothing(
    path: Path, statements: Sequence[str]
) -> None:
    file = watched(path)
    in_another_process(path, *statements)
    assert file.lost() is None
    in_another_process(path, "select * from marks", mode="ro")
    assert file.lost() is None
    with closing(connected(path)) as second:
        for statement in statements:
            second.execute(statement).fetchall()
    assert file.lost() is None


@pytest.mark.parametrize(
    ("changed", "became"),
    [
        (lambda x: x.replace(b"TABLE marks", b"TABLE \xffarks"), FileChange.OVERWRITTEN),
        (lambda x: x.replace(b"one", b"\xffne"), FileChange.OVERWRITTEN),
        (lambda x: x.replace(b"one", b"two"), FileChange.OVERWRITTEN),
        (lambda x: x[:-4096], None),  # SQLite has copied a part of its log: the disk is full
    ],
    ids=["schema", "no text", "value", "not all pages"],
)
def test_a_file_is_known_by_its_marks_which_are_looked_at_twice_a_second_at_the_most(
    path: Path, changed: Callable[[bytes], bytes], became: FileChange | None
) -> None:
    clock = FakeClock()
    file = OpenDatabase(path, MARKS, clock)
    clock.now += 0.5
    assert file.lost() is None
    path.write_bytes(changed(path.read_bytes()))
    clock.now += 0.49
    assert file.lost() is None  # a look costs too much for each write
    clock.now += 0.01
    lost = file.lost()
    assert (lost and lost.became) == became
