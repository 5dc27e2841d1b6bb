"""One connection to one SQLite file, in a thread of its own; its transactions and errors."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from changefeed.runtime.errors import StoreMissing, StoreRefused, StoreUnavailable
from changefeed.runtime.file_errors import (
    OUT_OF_HANDLES,
    sqlite_code,
    what_to_change,
    why_it_may_pass,
)
from changefeed.runtime.named_file import is_there
from changefeed.runtime.open_database import OpenDatabase
from changefeed.runtime.private_file import make_private
from changefeed.runtime.wal import change_to_wal
from changefeed.stores.sqlite.schema import CREATION, FILE_MARKS
from changefeed.stores.sqlite.transaction import FailedChange, Work, in_one_transaction

_APPLICATION = int.from_bytes(b"CFHL", "big")  # marks our files in pragma application_id
_SCHEMA = 3  # lower numbers were never released
_BUSY_TIMEOUT = 5.0
_SMALL_LOG = 16  # pages of SQLite's log of writes, where there was no room for more

T = TypeVar("T")
Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change whose caller waits."""

    work: Work
    answer: asyncio.Future[Any]


class SqliteFile:
    """One connection to one file, in a thread of its own.

    What is to be done is a plain function over the connection, and the thread does one
    after the other. Changes that are asked for while others are being written share the
    next transaction: with many ranges, a trip to the thread and a commit cost more than
    the change. A change is whole even when its caller was cancelled meanwhile. A file that
    ``keeps_changes`` is made for its user alone, and has each change on the disk at once.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        must_exist: bool = False,
        keeps_changes: bool = False,
    ) -> None:
        self._path = Path(path)
        self._must_exist = must_exist
        self._keeps_changes = keeps_changes
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._file: OpenDatabase | None = None
        self._was_full = False
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Future[Sequence[Any]] | None = None

    async def open(self) -> None:
        if not self._path.parent.is_dir():
            raise StoreMissing(
                f"there are no leases at {self._path}: there is no directory "
                f"{self._path.parent}; make it, or let a host do so (--set=leases.create=true)"
            )
        assert self._thread is None, f"{self._path} is open already"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leases")
        try:
            with self._errors(opening=True):
                self._connection = await self._in_thread(self._connect)
            await self._prepare()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        while self._writing is not None:
            await asyncio.wait([self._writing])
        assert not self._waiting, f"{len(self._waiting)} changes would wait for ever"
        if connection is not None:
            await self._in_thread(connection.close)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def read(connection: sqlite3.Connection) -> T:
            self._refuse_another_file()
            return work(connection)

        return await self._run(read)

    async def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work`` as the only writer. What it did is undone if it raises anything."""
        connection = self._opened()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(work, answer))
        if self._writing is None:
            self._write(connection)
        with self._errors():
            return await answer

    def _write(self, connection: sqlite3.Connection) -> None:
        """Write what waits. No task does it, so that none can be cancelled in the middle."""
        assert self._writing is None, "one transaction is written after the other"
        together, self._waiting = self._waiting, []
        assert together, "a transaction has something to write"
        works = [x.work for x in together]
        self._writing = self._in_thread(partial(self._transaction, connection, works))
        self._writing.add_done_callback(partial(self._written, connection, together))

    def _written(
        self,
        connection: sqlite3.Connection,
        together: Sequence[_Waiting],
        done: asyncio.Future[Sequence[Any]],
    ) -> None:
        """Give each its result; write what has come to wait meanwhile."""
        assert self._writing is done, "what ended is what was begun last"
        self._writing = None
        if self._waiting:
            self._write(connection)
        error = done.exception()
        answers = done.result() if error is None else [FailedChange(error)] * len(together)
        for one, answer in zip(together, answers, strict=True):
            if one.answer.cancelled():
                continue
            if isinstance(answer, FailedChange):
                one.answer.set_exception(answer.error)
            else:
                one.answer.set_result(answer)

    def _transaction(
        self, connection: sqlite3.Connection, works: Sequence[Work]
    ) -> Sequence[Any]:
        self._refuse_another_file()
        if self._was_full:
            self._write_back(connection)
        try:
            return in_one_transaction(connection, works)
        except sqlite3.Error as error:
            self._was_full = self._was_full or sqlite_code(error) == sqlite3.SQLITE_FULL
            raise

    def _write_back(self, connection: sqlite3.Connection) -> None:
        """Empty the log of writes, which may be what fills the disk, and keep it small."""
        connection.execute(f"pragma wal_autocheckpoint = {_SMALL_LOG}")
        assert not connection.in_transaction, "within one, nothing is written back"
        connection.execute("pragma wal_checkpoint(truncate)")
        self._was_full = False

    def _refuse_another_file(self) -> None:
        lost = None if self._file is None else self._file.lost()
        if lost is not None:
            raise StoreRefused(
                f"{lost} while hosts run: those that go on in the old file "
                "and those that start in another would be two fleets. Stop all hosts, put the "
                "right file in its place without the -wal and -shm beside it, and start them "
                "again"
            )

    def refusal(self, reason: str) -> StoreRefused:
        """Return the error for what asking again does not change."""
        return StoreRefused(f"{self._path}: {reason}")

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._opened()
        with self._errors():
            return await self._in_thread(partial(work, connection))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreRefused(f"{self._path} is not open: use it within `async with`")
        return self._connection

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        assert self._thread is not None, "a connection is used in its own thread alone"
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _connect(self) -> sqlite3.Connection:
        # SQLite says of a pipe that its disk is broken.
        if os.path.exists(self._path) and not os.path.isfile(self._path):  # noqa: PTH110, PTH113 - these raise nothing
            raise StoreRefused(f"{self._path} is not a file: name another")
        if os.path.exists(self._path) and not os.access(self._path, os.R_OK | os.W_OK):  # noqa: PTH110 - as above
            raise self.refusal(f"permission denied; {_CLOSED}")
        with making(self._path):
            if self._must_exist:
                self._require_file()
            elif self._keeps_changes:
                make_private(self._path)
        mode = "rw" if self._must_exist else "rwc"
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            timeout=_BUSY_TIMEOUT,
            isolation_level=None,
            uri=True,
        )
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("pragma schema_version")  # opens the file, and makes it
            self._file = OpenDatabase(self._path, FILE_MARKS)
        except BaseException:
            connection.close()  # else it stays open until Python collects garbage
            raise
        return connection

    def _require_file(self) -> None:
        """Raise ``StoreMissing`` where there is no file and one could be made."""
        if is_there(self._path):
            return
        if not os.access(self._path.parent, os.W_OK | os.X_OK):
            raise self.refusal(
                "it does not exist, and this user may not make it: check name and rights"
            )
        raise self._missing()

    def _missing(self) -> StoreMissing:
        return StoreMissing(
            f"there are no leases at {self._path} yet: check the name, or start a host",
            made_by_run=True,
        )

    async def _prepare(self) -> None:
        await self._run(self._look)
        if not await self._run(partial(change_to_wal, within=_BUSY_TIMEOUT)):
            raise StoreRefused(f"{self._path}: no WAL is possible here; use a local disk")
        durability = "full" if self._keeps_changes else "normal"
        await self._run(lambda x: x.execute(f"pragma synchronous = {durability}"))
        await self.change(self._make_ours)
        await self._run(self._mark)

    def _look(self, connection: sqlite3.Connection) -> None:
        """Refuse another program's file before the change to WAL changes it.

        In one transaction: a file that another host is making is seen empty, or whole.
        """
        connection.execute("begin")
        try:
            if not self._is_ours(connection) and self._must_exist:
                raise self._missing()  # an empty file
        finally:
            if connection.in_transaction:
                connection.execute("rollback")

    def _make_ours(self, connection: sqlite3.Connection) -> None:
        """Mark a new file as ours; make the tables."""
        if not self._is_ours(connection):
            connection.execute(f"pragma application_id = {_APPLICATION}")
            connection.execute(f"pragma user_version = {_SCHEMA}")
        for creation in CREATION:
            connection.execute(creation)

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file is marked; if not, it is new.

        Raise ``StoreRefused`` for one of another program, or of another version.
        """
        application = rows(connection, "pragma application_id")[0]["application_id"]
        schema = rows(connection, "pragma user_version")[0]["user_version"]
        if application != _APPLICATION:
            if schema or rows(connection, "select 1 from sqlite_master limit 1"):
                raise StoreRefused(
                    f"{self._path} belongs to another program: name another file"
                )
            return False
        if schema != _SCHEMA:
            advice = "upgrade changefeed-host" if schema > _SCHEMA else "name another file"
            raise StoreRefused(
                f"{self._path} has schema {schema}, and this version of changefeed-host reads"
                f" schema {_SCHEMA} only: {advice}"
            )
        return True

    def _mark(self, connection: sqlite3.Connection) -> None:
        """Copy the name of a new file from the log of writes into the file itself."""
        assert self._file is not None, "it was opened"
        if not self._file.is_marked:
            connection.execute("pragma wal_checkpoint(passive)")
            self._file = OpenDatabase(self._path, FILE_MARKS)
        self._file.watch_log()

    @contextmanager
    def _errors(self, *, opening: bool = False) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:  # a message of SQLite quotes what it has found
            raise self.refusal(f"{error}; {_DAMAGED}") from error
        except sqlite3.Error as error:
            code = sqlite_code(error)
            hint = why_it_may_pass(error) or _MAY_PASS.get(code)
            if code == sqlite3.SQLITE_CANTOPEN and not opening:
                hint = OUT_OF_HANDLES  # a file that was open once can be had again
            if hint is not None:
                raise StoreUnavailable(f"{self._path}: {error}; {hint}") from error
            hint = _WILL_NOT_PASS.get(code, "it cannot serve as a store")
            raise self.refusal(f"{error}; {hint}") from error
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error.strerror}") from error


_DAMAGED = "it is damaged; restore it, or start over in another file"
_CLOSED = "let this process read and write the file and its directory"
_MAY_PASS = {sqlite3.SQLITE_READONLY: _CLOSED}
_WILL_NOT_PASS = {
    sqlite3.SQLITE_NOTADB: "it is not a SQLite file: name another",
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Say what it means that a file or directory cannot be made."""
    try:
        yield
    except OSError as error:
        said = f"{path}: {error.strerror}"
        if reason := why_it_may_pass(error):
            raise StoreUnavailable(f"{said}; {reason}") from error
        raise StoreRefused(f"{said}; {what_to_change(error) or 'name another'}") from error


def rows(connection: sqlite3.Connection, statement: str, *parameters: str) -> Sequence[Row]:
    """Return what is found. A text that is no UTF-8 comes as the bytes that it is."""
    try:
        return [dict(row) for row in connection.execute(statement, parameters)]
    except sqlite3.OperationalError as error:
        if sqlite_code(error) != sqlite3.SQLITE_CORRUPT:
            raise
    connection.text_factory = _text_or_bytes  # so late because it takes its time
    try:
        return [dict(row) for row in connection.execute(statement, parameters)]
    finally:
        connection.text_factory = str


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
