"""What an error of SQLite means to the reader or the writer of a log."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

import pytest

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeDamaged
from changefeed.feeds.eventlog.database import advised, opened, typed
from changefeed.feeds.feed import RangeId
from tests.support.handles import out_of_handles

FILE = Path(__file__)  # one that is there


def failure(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk trouble")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        # what may pass is asked again
        (sqlite3.SQLITE_IOERR, FeedUnavailable, "disk"),
        (sqlite3.SQLITE_IOERR_FSYNC, FeedUnavailable, "disk"),
        (sqlite3.SQLITE_IOERR_SHORT_READ, FeedUnavailable, "disk"),
        (sqlite3.SQLITE_FULL, FeedUnavailable, "make room"),
        (sqlite3.SQLITE_BUSY, FeedUnavailable, "Another process"),
        (sqlite3.SQLITE_NOMEM, FeedUnavailable, "memory"),
        # what a person has to mend is refused
        (sqlite3.SQLITE_READONLY_DIRECTORY, FeedRefused, "the right to write"),
        (sqlite3.SQLITE_CANTOPEN, FeedRefused, "may this user"),
        (sqlite3.SQLITE_NOTADB, FeedRefused, "from a copy"),
        (sqlite3.SQLITE_ERROR, FeedRefused, "event log"),
    ],
)
def test_an_error_of_sqlite_is_one_of_the_feed_with_its_file_and_advice(
    code: int, kind: type[Exception], advice: str
) -> None:
    said = f"test_database.py.*{advice}"
    with pytest.raises(kind, match=said) as raised, advised(FILE, RangeId("r")):
        raise failure(code)
    assert not isinstance(raised.value, RangeDamaged)


def test_a_file_that_is_not_there_is_said_to_be_missing() -> None:
    with (
        pytest.raises(FeedRefused, match=r"records\.db is missing"),
        advised(FILE.parent / "records.db"),
    ):
        raise failure(sqlite3.SQLITE_CANTOPEN)


def test_a_log_that_cannot_be_opened_for_want_of_file_handles_is_waited_for(
    tmp_path: Path,
) -> None:
    file = tmp_path / "records.db"
    with opened(file, "rwc") as made:
        made.execute("create table t (x)")
    said = "file handles"
    with out_of_handles(), pytest.raises(FeedUnavailable, match=said), opened(file, "ro"):
        pass
    with opened(file, "ro"):
        pass


def test_a_page_that_sqlite_finds_damaged_is_damage_of_the_range_that_was_read() -> None:
    with pytest.raises(RangeDamaged) as refused, advised(FILE, RangeId("r")):
        raise failure(sqlite3.SQLITE_CORRUPT_INDEX)
    assert refused.value.range_id == "r"
    with pytest.raises(FeedRefused, match="from a copy"), advised(FILE):
        raise failure(sqlite3.SQLITE_CORRUPT)


class Kinds(NamedTuple):
    number: int
    text: str
    data: bytes


WRONG = [
    "SELECT NULL, 'text', x'00'",
    "SELECT 1.0, 'text', x'00'",
    "SELECT '1', 'text', x'00'",
    "SELECT 1, 2, x'00'",
    "SELECT 1, x'00', x'00'",
    "SELECT 1, 'text', 'aGk='",
    "SELECT 1, 'text', x'00', 4",
    "SELECT 1, 'text'",
    "SELECT 1, CAST(x'ff' AS TEXT), x'00'",
]


@pytest.mark.parametrize("statement", WRONG)
def test_a_row_that_was_not_written_like_that_is_damage(tmp_path: Path, statement: str) -> None:
    said = "damaged"
    with opened(tmp_path / "file.db", "rwc") as file:
        right = file.execute("SELECT 1, 'text', x'00'")
        assert typed(right, Kinds) == [(1, "text", b"\0")]
        with pytest.raises(FeedRefused, match=said) as refused, advised(FILE):
            typed(file.execute(statement), Kinds)
        assert not isinstance(refused.value, RangeDamaged)
        with pytest.raises(RangeDamaged, match=said) as damaged, advised(FILE, RangeId("r")):
            typed(file.execute(statement), Kinds)
        assert damaged.value.range_id == "r"


def test_a_message_of_sqlite_that_cannot_be_read_is_damage() -> None:
    with pytest.raises(FeedRefused, match="from a copy"), advised(FILE):
        b"malformed database schema (\xff)".decode()
