"""Dead letters in a SQLite file: any number of processes on one machine.

One row for each letter, in columns a person can read (``select id, error, text from
dead_letters``); ``letter`` holds the whole, and is what is read back. Every call opens the
file for one statement, and so one transaction; it is on the disk when the call returns. A
file that was moved away or deleted meanwhile is made again.

Limits: the file must be on a local disk. A writer waits for others, ``busy_timeout``
seconds at the most.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import msgspec

from changefeed.observers.dead_letters.files import explained, not_opened
from changefeed.observers.dead_letters.letter import DeadLetter, LetterId, check_same_change
from changefeed.observers.errors import DeadLettersRefused
from changefeed.runtime.private_file import make_private

_APPLICATION = int.from_bytes(b"CFHD", "big")  # marks our files in pragma application_id
_BUSY_TIMEOUT = 5.0
_CREATION = """
create table dead_letters (
    id text primary key,
    range text not null,
    sequence integer not null,
    key text not null,
    operation text not null,
    body text not null,
    error text not null,
    text text not null,
    attempts integer not null,
    host text not null,
    failed_at text not null,
    letter blob not null
) without rowid
"""
_INSERTION = """
insert or ignore into dead_letters values (
    :id, :range, :sequence, :key, :operation, :body, :error, :text, :attempts, :host,
    :failed_at, :letter
)
"""
_DELETION = "delete from dead_letters where id = :id"

_decoder = msgspec.json.Decoder(DeadLetter)


class SqliteDeadLetters:
    """Letters in one file; ``open_sqlite`` makes it. The file is opened in a thread."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout

    async def put(self, letter: DeadLetter) -> None:
        row = _row(letter)
        while not await asyncio.to_thread(self._change, _INSERTION, row):
            kept = await self.get(letter.id)
            if kept is not None:  # else it was removed in between
                return check_same_change(letter, kept, str(self._path))
        return None

    async def list(self) -> Sequence[DeadLetter]:
        return await asyncio.to_thread(self._select, "order by range, sequence, id")

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        found = await asyncio.to_thread(self._select, "where id = :id", id=letter_id)
        return found[0] if found else None

    async def remove(self, letter_id: LetterId) -> bool:
        return await asyncio.to_thread(self._change, _DELETION, {"id": letter_id})

    def _change(self, statement: str, parameters: Mapping[str, object]) -> bool:
        with self._opened() as connection:
            return connection.execute(statement, parameters).rowcount > 0

    def _select(self, which: str, **parameters: str) -> Sequence[DeadLetter]:
        statement = f"select letter from dead_letters {which}"  # noqa: S608 - our own two texts
        with self._opened() as connection:
            rows = connection.execute(statement, parameters).fetchall()
        return [self._letter(kept) for (kept,) in rows]

    def _letter(self, kept: bytes) -> DeadLetter:
        try:
            return _decoder.decode(kept)
        except (msgspec.DecodeError, TypeError) as error:
            raise OSError(
                f"dead letters in {self._path}: one is no dead letter ({error}); mend or move "
                "the file"
            ) from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(_connected(self._path, self._busy_timeout)) as connection:
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise OSError(f"dead letters in {self._path}: {explained(error)}") from error
        except DeadLettersRefused as error:  # another file lies there by now
            raise OSError(str(error)) from error


def _row(letter: DeadLetter) -> dict[str, object]:
    return {
        "id": letter.id,
        "range": letter.range_id,
        "sequence": letter.sequence,
        "key": letter.key,
        "operation": letter.change.operation.value,
        "body": letter.change.body.decode(errors="replace"),
        "error": letter.failure.kind,
        "text": letter.failure.text,
        "attempts": letter.attempts,
        "host": letter.host,
        "failed_at": letter.failed_at.isoformat(),
        "letter": msgspec.json.encode(letter),
    }


@asynccontextmanager
async def open_sqlite(
    path: str, *, busy_timeout: float = _BUSY_TIMEOUT
) -> AsyncIterator[SqliteDeadLetters]:
    """Make the file if it is not there, and see that it can be written.

    Raise ``DeadLettersUnavailable`` if it can later, else ``DeadLettersRefused``; so for the
    file of another program.
    """
    try:
        await asyncio.to_thread(_prepare, Path(path), busy_timeout)
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        raise not_opened(path, error) from error
    yield SqliteDeadLetters(Path(path), busy_timeout)


def _prepare(path: Path, busy_timeout: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_private(path)
    with closing(_connected(path, busy_timeout)) as connection:
        # Nothing is written: the letters on a full disk can be looked at.
        connection.execute("begin immediate")
        connection.execute("rollback")


def _connected(path: Path, busy_timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
    try:
        connection.execute("pragma synchronous = full")
        if _application(connection) != _APPLICATION:
            _make_ours(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _application(connection: sqlite3.Connection) -> int:
    (application,) = connection.execute("pragma application_id").fetchone()
    return int(application)


def _make_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Make the table in a new file, and mark it; refuse one of another program."""
    connection.execute("begin immediate")  # processes that start together take turns
    application = _application(connection)
    if application not in (0, _APPLICATION) or (
        not application and connection.execute("select 1 from sqlite_master").fetchone()
    ):
        raise DeadLettersRefused(
            f"{path} belongs to another program; give the dead letters their own file"
        )
    if not application:
        connection.execute(f"pragma application_id = {_APPLICATION}")
        connection.execute(_CREATION)
    connection.execute("commit")
