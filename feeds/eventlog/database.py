"""SQLite, opened the way the event log needs it, with errors that advise.

The catalog is written once an era, so it keeps SQLite's plain rollback journal, which a
reader can open without writing anything. The records use the write-ahead log: readers
never wait for the writer. SQLite keeps that log's index in memory that processes share
through a file, so even readers must be able to write to the directory.

SQLite hands out whatever lies in a row: a number may be a text, and a text no UTF-8, if the
bytes of the file are not those that were written. What has no checksum is taken as ``typed``.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiosqlite
import msgspec

from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable, RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.runtime.file_errors import sqlite_code
from changefeed.runtime.handles import out_of_handles
from changefeed.runtime.open_database import OpenDatabase

BUSY_SECONDS = 10.0
"""How long SQLite waits for another process before it says that a file is busy."""

Access = Literal["ro", "rw", "rwc"]
Synchronous = Literal["full", "normal", "off"]
"""What an append waits for. ``full``: it outlives a loss of power. ``normal`` and ``off``:
it outlives a killed process, but a loss of power may take the last appends, and with
``off`` even the whole file."""

_MARKS = "SELECT identity, broker, (SELECT sum(last) FROM partitions) FROM log"
_OPEN_LOG = "PRAGMA data_version"
"""Reads, so that SQLite opens the log of writes: from then on no other process removes it."""


_AS_THEY_ARE = (bytes,)  # a text is not read as bytes in base64

Row = TypeVar("Row")


def address(path: Path, access: Access) -> str:
    return f"{path.absolute().as_uri()}?mode={access}"


def records_kept_open(path: Path) -> OpenDatabase:
    """Know the records of a broker again later, of which a ``connect`` is open.

    Blocks, for a moment.
    """
    with advised(path):
        file = OpenDatabase(path, _MARKS)
        file.watch_log()
        return file


def refuse_other_records(records: OpenDatabase) -> None:
    """Raise ``FeedRefused`` if another file, or none, is there by now. May block."""
    lost = records.lost()
    if lost is not None:
        raise FeedRefused(
            f"{lost} while it was open: what is appended here goes "
            f"nowhere, and what others append is not seen. Stop what uses the log, restore "
            f"its directory from one copy, and start again"
        )


@contextmanager
def opened(path: Path, access: Access) -> Iterator[sqlite3.Connection]:
    """Open a database for a moment, in a thread; statements commit one by one."""
    with advised(path):
        connection = sqlite3.connect(
            address(path, access), uri=True, isolation_level=None, timeout=BUSY_SECONDS
        )
        try:
            yield connection
        finally:
            connection.close()


@asynccontextmanager
async def connect(path: Path, access: Access) -> AsyncIterator[aiosqlite.Connection]:
    """Keep a database open, with a thread of its own; statements commit one by one."""
    with advised(path):
        connection = await aiosqlite.connect(
            address(path, access), uri=True, isolation_level=None, timeout=BUSY_SECONDS
        )
    try:
        with advised(path):
            await connection.execute_fetchall(_OPEN_LOG)
        yield connection
    finally:
        await connection.close()


@contextmanager
def advised(path: Path, range_id: RangeId | None = None) -> Iterator[None]:
    """Turn SQLite's errors into those of feeds; damage, to that of the range that is read."""
    try:
        yield
    except (UnicodeDecodeError, msgspec.ValidationError) as error:
        # A message of SQLite, which may quote what it has found; or see ``typed``.
        raise _damaged(error, path, range_id) from error
    except sqlite3.Error as error:
        raise _feed_error(error, path, range_id) from error


def typed(rows: Iterable[Any], row: type[Row]) -> list[Row]:
    """Return rows whose values are of the types they were written with.

    To be called within ``advised``, where any other counts as damage.
    """
    return [msgspec.convert(x, row, builtin_types=_AS_THEY_ARE) for x in rows]


_DAMAGED = "The log is damaged: restore its directory from a copy"
_ADVICE = {
    sqlite3.SQLITE_READONLY: "Give this user the right to write the log's directory",
    sqlite3.SQLITE_PERM: "Give this user the right to write the log's directory",
    sqlite3.SQLITE_CANTOPEN: (
        "Is it there, and may this user write its directory? Readers must be able to, too: "
        "SQLite keeps the memory that processes share there"
    ),
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
_PASSING = {
    sqlite3.SQLITE_FULL: (
        "What was acknowledged is safe, this append was not written: make room, then append "
        "again"
    ),
    sqlite3.SQLITE_BUSY: "Another process holds it: ask again",
    sqlite3.SQLITE_LOCKED: "Another process holds it: ask again",
    sqlite3.SQLITE_IOERR: "Look at the disk and at the system's log",
    sqlite3.SQLITE_NOMEM: "There is no memory left",
}


def _feed_error(error: sqlite3.Error, path: Path, range_id: RangeId | None) -> FeedError:
    code = sqlite_code(error)
    if code == sqlite3.SQLITE_CANTOPEN and not path.exists():
        return FeedRefused(
            f"{path} is missing: the log's directory is not whole. Restore it from a copy"
        )
    if code == sqlite3.SQLITE_CANTOPEN and out_of_handles():  # SQLite does not say why
        return FeedUnavailable(
            f"{path}: {error}. The process is out of file handles: raise its limit (ulimit -n)"
        )
    if code in _PASSING:
        return FeedUnavailable(f"{path}: {error}. {_PASSING[code]}")
    if code == sqlite3.SQLITE_CORRUPT:
        return _damaged(error, path, range_id)
    advice = _ADVICE.get(code, "This does not look like an event log of this version")
    return FeedRefused(f"{path}: {error}. {advice}")


def _damaged(error: Exception, path: Path, range_id: RangeId | None) -> FeedError:
    if range_id is not None:
        return RangeDamaged(range_id, f"range {range_id!r} in {path}: {error}. {_DAMAGED}")
    return FeedRefused(f"{path}: {error}. {_DAMAGED}")
