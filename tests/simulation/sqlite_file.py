"""SQLite's container in virtual time: the real file and the real SQL, without its thread.

What the thread would do is done at one moment of virtual time, at once or after a while, as
a busy file or a slow disk would have it. Each process has its own connection. The disk may
be full, busy or broken: before a transaction, at any statement of it, and after its commit,
whose answer is then lost.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextvars import Context
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast
from unittest.mock import patch

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.leases.stored import StoredLeases
from changefeed.stores.kinds import LEASES
from changefeed.stores.sqlite.file import SqliteFile
from changefeed.stores.sqlite.store import SqliteStore
from changefeed.stores.store import CallLimits, Record
from changefeed.testing.proxies import show_methods

from .probes import Probe
from .stores import Records, Surroundings

T = TypeVar("T")
_ERRORS = {
    sqlite3.SQLITE_BUSY: "database is locked",
    sqlite3.SQLITE_FULL: "database or disk is full",
    sqlite3.SQLITE_IOERR: "disk I/O error",
}


class SqliteStores:
    """One file, and the processes that have it open."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._directory = TemporaryDirectory(prefix="simulation-", dir=_fastest())
        self._path = Path(self._directory.name) / "leases.db"
        file = _FileAtOnce(self._path)
        self._witness = file.connection
        self._witness.execute("pragma journal_mode = wal")
        file._make_ours(self._witness)
        self._opened = [file]
        self._files: dict[str, _SimulatedFile] = {}
        self._leases = StoredLeases(SqliteStore(file))
        self._told = dict[RangeId, Lease]()

    @property
    def records(self) -> Records:
        return self._leases

    def connect(self, process_id: str) -> LeaseContainer:
        file = _SimulatedFile(self._path, self, self._around, process_id)
        self._opened.append(file)
        self._files[process_id] = file
        leases = StoredLeases(SqliteStore(file))
        return cast("LeaseContainer", _Counting(leases, self._around, process_id))

    def connection(self, process_id: str) -> "BreakingConnection":
        return self._files[process_id].connection

    def close(self) -> None:
        for file in self._opened:
            file.connection.close()
        self._directory.cleanup()

    def tell_changes(self, writer: str) -> None:
        """Tell the checker what ``writer`` has changed in the file."""
        before, around = self._told, self._around
        rows = self._witness.execute(
            "select cast(version as text), kind, key, body, position from records"
            " where kind = ?",
            (LEASES,),
        )
        leases = [
            self._leases.decode(
                Record(kind=kind, key=key, body=body.encode(), position=at, version=version)
            )
            for version, kind, key, body, at in rows
        ]
        self._told = {x.range_id: x for x in leases}
        for range_id, lease in self._told.items():
            if lease != before.get(range_id):
                around.checker.stored(before.get(range_id), lease, writer)
            if range_id not in before:
                around.created(writer, lease.range)
        for range_id in before.keys() - self._told.keys():
            around.checker.deleted(before[range_id], writer)


class _Counting:
    """Tells of every call."""

    def __init__(self, inner: Any, around: Surroundings, process_id: str) -> None:
        self._inner = inner
        self._around = around
        self._process_id = process_id
        show_methods(self, inner)

    def bounded(self, bounds: CallLimits) -> "_Counting":
        return _Counting(self._inner.bounded(bounds), self._around, self._process_id)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method

        def counted(*arguments: Any) -> Any:
            self._around.called(self._process_id, name)
            return method(*arguments)

        return counted


class _FileAtOnce(SqliteFile):
    """Does at once what is to be done."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connection = self.connection = self._connect()
        self.connection.execute("pragma synchronous = off")  # no power fails here

    def _in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        _do(work, done)
        return done


class BreakingConnection(sqlite3.Connection):
    """Raises ``error`` at the statement after ``statements_left`` more of a transaction, or
    after a commit. A full or broken disk ends a transaction by itself, or leaves it open.
    """

    error: sqlite3.OperationalError | None = None
    statements_left = 0
    ends_transaction = False
    after_commit = False

    def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self.error is None:
            return super().execute(statement, parameters)
        if self.after_commit:
            cursor = super().execute(statement, parameters)
            if statement == "commit":
                self._break()
            return cursor
        if self.in_transaction:
            self.statements_left -= 1
            if self.statements_left < 0:
                if self.ends_transaction:
                    super().execute("rollback")
                self._break()
        return super().execute(statement, parameters)

    def _break(self) -> None:
        error, self.error = self.error, None
        assert error is not None
        raise error


class _SimulatedFile(_FileAtOnce):
    connection: BreakingConnection

    def __init__(
        self,
        path: Path,
        stores: SqliteStores,
        around: Surroundings,
        process_id: str,
    ) -> None:
        super().__init__(path)
        self._stores = stores
        self._around = around
        self._process_id = process_id
        self._free_at = 0.0

    def _in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._free_at = max(self._free_at, loop.time()) + self._delay()
        context = Context()  # the disk's: it is not frozen with the host
        loop.call_at(self._free_at, _do, lambda: self._watched(work), done, context=context)
        return done

    def _delay(self) -> float:
        weather, random = self._around.weather, self._around.random
        if random.random() < weather.slow + weather.stall:
            return random.uniform(0.5, 6.0)
        return 0.0

    def _watched(self, work: Callable[[], T]) -> T:
        """Do it, perhaps, and tell the checker what it has changed."""
        weather, chance = self._around.weather, self._around.random.random
        if chance() < weather.fail_before:
            raise self._error()
        if weather.break_off and chance() < weather.break_off:
            self._break_off()
        changes = self.connection.total_changes
        breaks = self.connection.error is not None
        try:
            answer = work()
        finally:
            broke = breaks and self.connection.error is None
            self._around.checker.hit(Probe.TRANSACTION_BROKEN, where=broke)
            self.connection.error = None
            if self.connection.total_changes != changes:
                self._stores.tell_changes(self._process_id)
        if chance() < weather.fail_after:
            raise self._error()
        return answer

    def _break_off(self) -> None:
        connection, random = self.connection, self._around.random
        connection.error = self._error()
        connection.statements_left = random.randrange(6)
        connection.ends_transaction = random.random() < 0.5
        connection.after_commit = random.random() < 0.3

    def _connect(self) -> sqlite3.Connection:
        with patch.object(
            sqlite3, "connect", partial(sqlite3.connect, factory=BreakingConnection)
        ):
            return super()._connect()

    def _error(self) -> sqlite3.OperationalError:
        code = self._around.random.choice([*_ERRORS])
        error = sqlite3.OperationalError(_ERRORS[code])
        error.sqlite_errorcode = code
        return error


def _do(work: Callable[[], T], done: "asyncio.Future[T]") -> None:
    try:
        answer = work()
    except Exception as error:  # noqa: BLE001 - carried to whoever waits
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(answer)


def _fastest() -> str | None:
    """Return a directory in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
