"""Dead letters in a SQLite file: any number of processes on one machine.

One row for each letter, in columns a person can read (``select id, error, text from
dead_letters``); ``letter`` holds the whole, and is what is read back. Every call is one
statement, and so one transaction; it is on the disk when the call returns.

Limits: the file must be on a local disk. A writer waits for others, ``busy_timeout``
seconds at the most.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiosqlite
import msgspec

from changefeed.observers.dead_letters.letter import DeadLetter, LetterId, check_same_change
from changefeed.observers.errors import DeadLettersRefused

_APPLICATION = int.from_bytes(b"CFHD", "big")  # marks our files in pragma application_id
_BUSY_TIMEOUT = 5.0
_CREATION = """
create table if not exists dead_letters (
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

_decoder = msgspec.json.Decoder(DeadLetter)


class SqliteDeadLetters:
    """Letters behind one connection; ``open_sqlite`` makes it."""

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    async def put(self, letter: DeadLetter) -> None:
        row = _row(letter)
        while not await self._inserted(row):
            kept = await self.get(letter.id)
            if kept is not None:  # else it was removed in between
                return check_same_change(letter, kept, str(self._path))
        return None

    async def _inserted(self, row: dict[str, object]) -> bool:
        with self._explained():
            async with self._connection.execute(_INSERTION, row) as cursor:
                return cursor.rowcount > 0

    async def list(self) -> Sequence[DeadLetter]:
        return await self._select("order by range, sequence, id")

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        found = await self._select("where id = ?", letter_id)
        return found[0] if found else None

    async def remove(self, letter_id: LetterId) -> bool:
        statement = "delete from dead_letters where id = ?"
        with self._explained():
            async with self._connection.execute(statement, (letter_id,)) as cursor:
                return cursor.rowcount > 0

    async def _select(self, which: str, *parameters: str) -> Sequence[DeadLetter]:
        statement = f"select letter from dead_letters {which}"  # noqa: S608 - our own two texts
        with self._explained():
            rows = await self._connection.execute_fetchall(statement, parameters)
        return [_decoder.decode(letter) for (letter,) in rows]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OSError(f"dead letters in {self._path}: {error}") from error


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
    """Make the file if it is not there. Raise ``DeadLettersRefused`` for another program's."""
    try:
        # Connected first, and handed over then: aiosqlite leaves its thread running when
        # it fails to connect.
        connected = await asyncio.to_thread(_connected, Path(path), busy_timeout)
    except (OSError, sqlite3.Error) as error:
        raise DeadLettersRefused(f"dead letters cannot be kept in {path}: {error}") from error
    async with aiosqlite.Connection(lambda: connected, 64) as connection:
        yield SqliteDeadLetters(connection, Path(path))


def _connected(path: Path, busy_timeout: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("pragma synchronous = full")
    connection.execute("begin immediate")  # processes that start together take turns
    (application,) = connection.execute("pragma application_id").fetchone()
    if application not in (0, _APPLICATION) or (
        not application and connection.execute("select 1 from sqlite_master").fetchone()
    ):
        raise DeadLettersRefused(
            f"{path} belongs to another program; give the dead letters their own file"
        )
    connection.execute(f"pragma application_id = {_APPLICATION}")
    connection.execute(_CREATION)
    connection.execute("commit")
