"""How a log is made: in one piece.

Its files are written aside and renamed into place. Of two processes that make the same
log at once, one wins and the other gets an error; no reader ever sees half a log.
"""

import asyncio
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.eventlog.database import opened
from changefeed.feeds.eventlog.hashing import VIRTUAL_PARTS
from changefeed.feeds.eventlog.ids import range_id
from changefeed.feeds.eventlog.schema import (
    CATALOG,
    CATALOG_TABLES,
    FORMAT,
    NEW_PARTITION,
    RECORDS,
    RECORDS_TABLES,
    open_partitions,
)
from changefeed.runtime.private_file import PRIVATE_FOLDER

DEFAULT_PARTS = 12
MOST_PARTS = 4096


async def create_log(path: str | Path, parts: int = DEFAULT_PARTS) -> None:
    """Make an empty log. The number of parts is for good; its ranges can be split.

    The directory must be new or empty. Raise ``FeedRefused`` if it is not, or cannot be
    made.
    """
    await asyncio.to_thread(_make, Path(path), parts)


def _make(home: Path, parts: int) -> None:
    if not 1 <= parts <= MOST_PARTS:
        raise FeedRefused(f"a log has 1 to {MOST_PARTS} parts, not {parts}")
    aside = home.parent / f".{home.name}.{secrets.token_hex(4)}.new"
    with _advised(home):
        home.parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir(mode=PRIVATE_FOLDER)
        try:
            _write(aside, parts)
            aside.rename(home)  # takes the place of nothing but an empty directory
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _advised(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if home.is_dir() and any(home.iterdir()):
            advice = "There is something already: open it, or take another directory"
        else:
            advice = "Take a directory that this user may make"
        raise FeedRefused(f"no event log can be made at {home}: {error}. {advice}") from error


def _write(home: Path, parts: int) -> None:
    identity, now_us = uuid4().hex, time.time_ns() // 1000
    folder, last = Path("brokers", "1"), VIRTUAL_PARTS - 1
    (home / folder).mkdir(parents=True)
    with opened(home / folder / RECORDS, "rwc") as records:
        records.execute("PRAGMA journal_mode = WAL")
        records.executescript(RECORDS_TABLES)
        records.execute("BEGIN")
        records.execute("INSERT INTO log VALUES (1, ?, ?, 1)", (identity, FORMAT))
        open_partitions(records, range(1, parts + 1))
        records.execute("COMMIT")
    with opened(home / CATALOG, "rwc") as catalog:
        catalog.executescript(CATALOG_TABLES)
        catalog.execute("BEGIN")
        catalog.execute(
            "INSERT INTO log VALUES (1, ?, ?, ?, ?)", (identity, FORMAT, parts, now_us)
        )
        catalog.execute("INSERT INTO eras VALUES (1, ?)", (now_us,))
        catalog.execute("INSERT INTO brokers VALUES (1, ?)", (folder.as_posix(),))
        catalog.executemany(
            NEW_PARTITION,
            [
                (n + 1, range_id(era=1, part=n, low=0, high=last), 1, n, 0, last, 1, 0)
                for n in range(parts)
            ],
        )
        catalog.execute("COMMIT")
