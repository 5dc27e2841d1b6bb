"""Leases in a SQLite file: any number of host processes on one machine.

One row for each lease, in columns a person can read: ``select range_id, owner,
continuation from leases``. Every write is one transaction that begins as a writer, so
what it decided on is what it overwrites. The version of a row is its row number, which
SQLite's ``autoincrement`` never uses twice, not even for a row that was deleted and made
anew. Waiting for other writers happens off the event loop, for ``busy_timeout`` seconds.

The file is in WAL mode with ``synchronous=normal``. A kill of any process loses nothing.
A power cut may lose the last writes of all of them, consistently: checkpoints are then a
little older, and some changes are delivered again. Waiting for the disk at each renewal
would buy little for that.

Limits: WAL needs shared memory, so all hosts must be on one machine, and the file on a
local disk. Do not delete or replace it while hosts run: they would go on in the old one.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.errors import ContainerRefused, ContainerUnavailable
from changefeed.leases.lease import Checkpoint, Lease, Member, Version
from changefeed.leases.tables import (
    KEEP,
    Decision,
    Record,
    TableCheckpoints,
    TableLeases,
    TableOwnership,
)

_APPLICATION = int.from_bytes(b"CFHL", "big")  # marks our files in pragma application_id
_SCHEMA = 1
_BUSY_TIMEOUT = 5.0

Row = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Record]):
    """How one kind of record lies in a table. The first column is its key.

    The statements are put together from the constants at the end of this file (S608).
    """

    table: str
    columns: Mapping[str, str]
    to_row: Callable[[Record], Row]
    from_row: Callable[[Row], Record]
    left_out: str = ""  # a column that listings do without

    @property
    def key(self) -> str:
        return next(iter(self.columns))

    @property
    def creation(self) -> str:
        columns = ", ".join(f"{name} {form}" for name, form in self.columns.items())
        return (
            f"create table if not exists {self.table}"
            f" (version integer primary key autoincrement, {columns})"
        )

    @property
    def insertion(self) -> str:
        """Takes the place of a row with the same key, under a new version."""
        names = ", ".join(self.columns)
        marks = ", ".join(f":{name}" for name in self.columns)
        return f"insert or replace into {self.table} ({names}) values ({marks})"  # noqa: S608

    @property
    def deletion(self) -> str:
        return f"delete from {self.table} where {self.key} = ?"  # noqa: S608

    def selection(self, *, without: str = "") -> str:
        names = ", ".join(f"null as {x}" if x == without else x for x in self.columns)
        return f"select cast(version as text) as version, {names} from {self.table}"  # noqa: S608


_Work = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change that somebody waits for."""

    work: _Work
    answer: asyncio.Future[Any]


class SqliteFile:
    """One connection to one file, in a thread of its own.

    What is to be done is a plain function over the connection, and the thread does one
    after the other. Changes that are asked for while others are being written share the
    next transaction: with many ranges, a trip to the thread and a commit cost more than
    the change. A change is whole even when whoever asked for it was cancelled meanwhile.
    """

    def __init__(self, path: Path | str, busy_timeout: float, tables: Sequence[str]) -> None:
        self._path = Path(path)
        self._busy_timeout = busy_timeout
        self._tables = tables
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Future[Sequence[Any]] | None = None

    async def open(self) -> None:
        if not self._path.parent.is_dir():
            raise ContainerRefused(
                f"{self._path}: there is no directory {self._path.parent}; make it first"
            )
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
        if connection is not None:
            await self._in_thread(connection.close)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)

    async def select(self, statement: str, *parameters: str) -> Sequence[Row]:
        return await self._run(lambda connection: _rows(connection, statement, *parameters))

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
        together, self._waiting = self._waiting, []
        works = [x.work for x in together]
        self._writing = self._in_thread(partial(_transaction, connection, works))
        self._writing.add_done_callback(partial(self._written, connection, together))

    def _written(
        self,
        connection: sqlite3.Connection,
        together: Sequence[_Waiting],
        done: asyncio.Future[Sequence[Any]],
    ) -> None:
        """Tell each what became of it; write what has come to wait meanwhile."""
        self._writing = None
        if self._waiting:
            self._write(connection)
        error = done.exception()
        answers = done.result() if error is None else [_Failed(error)] * len(together)
        for one, answer in zip(together, answers, strict=True):
            if one.answer.cancelled():
                continue
            if isinstance(answer, _Failed):
                one.answer.set_exception(answer.error)
            else:
                one.answer.set_result(answer)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._opened()
        with self._errors():
            return await self._in_thread(partial(work, connection))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ContainerRefused(f"{self._path} is not open: use it within `async with`")
        return self._connection

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout, isolation_level=None
        )
        connection.row_factory = sqlite3.Row
        return connection

    async def _prepare(self) -> None:
        # Processes that start together get in each other's way here, and SQLite does not
        # wait by itself for the change to WAL.
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(ContainerUnavailable),
            stop=stop_after_delay(self._busy_timeout),
            wait=wait_random(0.005, 0.05),
            reraise=True,
        ):
            with attempt:
                rows = await self.select("pragma journal_mode = wal")
        if [[*x.values()] for x in rows] != [["wal"]]:
            raise ContainerRefused(f"{self._path}: no WAL is possible here; use a local disk")
        await self.select("pragma synchronous = normal")
        await self.change(self._make_ours)

    def _make_ours(self, connection: sqlite3.Connection) -> None:
        """Mark a new file as ours, refuse one that is not; make the tables."""
        application = _rows(connection, "pragma application_id")[0]["application_id"]
        schema = _rows(connection, "pragma user_version")[0]["user_version"]
        if application != _APPLICATION:
            if schema or _rows(connection, "select 1 from sqlite_master limit 1"):
                raise ContainerRefused(
                    f"{self._path} belongs to another program; give the leases their own file"
                )
            connection.execute(f"pragma application_id = {_APPLICATION}")
            connection.execute(f"pragma user_version = {_SCHEMA}")
        elif schema > _SCHEMA:
            raise ContainerRefused(
                f"{self._path} has schema {schema}, written by a newer version of this"
                f" program, which itself knows {_SCHEMA}; upgrade this host"
            )
        for creation in self._tables:
            connection.execute(creation)

    @contextmanager
    def _errors(self, *, opening: bool = False) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            hint = _MAY_PASS.get(code)
            if hint is not None and not opening:
                raise ContainerUnavailable(f"{self._path}: {error}; {hint}") from error
            hint = _WILL_NOT_PASS.get(code, "it cannot serve as a lease container")
            raise ContainerRefused(f"{self._path}: {error}; {hint}") from error


_MAY_PASS = {
    sqlite3.SQLITE_BUSY: "another process did not finish its write in time",
    sqlite3.SQLITE_LOCKED: "another connection did not finish its write in time",
    sqlite3.SQLITE_IOERR: "the disk did not answer; look at the system's log",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for this process",
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_PROTOCOL: "too many processes open it at this moment",
    sqlite3.SQLITE_CANTOPEN: "the file was there before; out of file handles?",
    sqlite3.SQLITE_NOMEM: "this process is out of memory",
}
_WILL_NOT_PASS = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite file; give the leases their own",
    sqlite3.SQLITE_CANTOPEN: "let this process read and write the file and its directory",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore it, or begin anew in another file",
}


class SqliteTable(Generic[Record]):
    def __init__(self, file: SqliteFile, kind: Kind[Record]) -> None:
        self._file = file
        self._kind: Kind[Record] = kind
        self._one = f"{kind.selection()} where {kind.key} = ?"

    async def all(self) -> Sequence[Record]:
        rows = await self._file.select(self._kind.selection(without=self._kind.left_out))
        return [self._kind.from_row(row) for row in rows]

    async def get(self, key: str) -> Record | None:
        return self._only(await self._file.select(self._one, key))

    async def change(
        self, key: str, decide: Callable[[Record | None], Decision[Record]]
    ) -> Record | None:
        kind = self._kind

        def read_decide_write(connection: sqlite3.Connection) -> Record | None:
            stored = self._only(_rows(connection, self._one, key))
            wanted = decide(stored)
            if wanted is KEEP:
                return stored
            if wanted is None:
                connection.execute(kind.deletion, (key,))
                return None
            row_id = connection.execute(kind.insertion, kind.to_row(wanted)).lastrowid
            return replace(wanted, version=Version(str(row_id)))

        return await self._file.change(read_decide_write)

    def _only(self, rows: Sequence[Row]) -> Record | None:
        return self._kind.from_row(rows[0]) if rows else None


class _InFile:
    """Opens the file on ``async with``, and closes it after."""

    _file: SqliteFile

    async def __aenter__(self) -> Self:
        await self._file.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._file.close()


class SqliteLeases(_InFile, TableLeases):
    """Ownership and checkpoints in one row of ``leases``; hosts in ``members``."""

    def __init__(self, path: Path | str, *, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        self._file = SqliteFile(path, busy_timeout, (_LEASES.creation, _MEMBERS.creation))
        super().__init__(SqliteTable(self._file, _LEASES), SqliteTable(self._file, _MEMBERS))


class SqliteOwnership(_InFile, TableOwnership):
    """Ownership alone, in ``ownership``; hosts in ``members``."""

    def __init__(self, path: Path | str, *, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        self._file = SqliteFile(path, busy_timeout, (_OWNERSHIP.creation, _MEMBERS.creation))
        super().__init__(SqliteTable(self._file, _OWNERSHIP), SqliteTable(self._file, _MEMBERS))


class SqliteCheckpoints(_InFile, TableCheckpoints):
    """Checkpoints alone, in ``checkpoints``."""

    def __init__(self, path: Path | str, *, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        self._file = SqliteFile(path, busy_timeout, (_CHECKPOINTS.creation,))
        super().__init__(SqliteTable(self._file, _CHECKPOINTS))


@dataclass(frozen=True, slots=True)
class _Failed:
    """In the place of an answer: what was raised instead."""

    error: BaseException


def _transaction(connection: sqlite3.Connection, works: Sequence[_Work]) -> Sequence[Any]:
    """Do all of them as the only writer, in one commit; return their answers.

    Raise what SQLite raises, and then nothing is done.
    """
    connection.execute("begin immediate")
    try:
        answers = [_apart(connection, work) for work in works]
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return answers


def _apart(connection: sqlite3.Connection, work: _Work) -> Any:
    """Do one of several, and undo it alone if it is refused."""
    connection.execute("savepoint one")
    try:
        answer = work(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - raised again where the answer is waited for
        connection.execute("rollback to one")
        answer = _Failed(error)
    connection.execute("release one")
    return answer


def _rows(connection: sqlite3.Connection, statement: str, *parameters: str) -> Sequence[Row]:
    return [dict(row) for row in connection.execute(statement, parameters)]


def _lease_row(lease: Lease) -> Row:
    return {
        "range_id": lease.range.id,
        "low": lease.range.low,
        "high": lease.range.high,
        "parents": msgspec.json.encode(lease.range.parents).decode(),
        "owner": lease.owner,
        "incarnation": lease.incarnation,
        "epoch": lease.epoch,
        "renewals": lease.renewals,
        "next_owner": lease.next_owner,
        "ended": lease.ended,
        "paused": lease.paused,
        "stamp": lease.stamp,
        "continuation": lease.continuation,
        "checkpoint_epoch": lease.checkpoint_epoch,
        "write_id": lease.write_id,
    }


def _lease(row: Row) -> Lease:
    return Lease(
        range=FeedRange(
            id=row["range_id"],
            low=row["low"],
            high=row["high"],
            parents=msgspec.json.decode(row["parents"], type=tuple[RangeId, ...]),
        ),
        owner=row["owner"],
        incarnation=row["incarnation"],
        epoch=row["epoch"],
        renewals=row["renewals"],
        next_owner=row["next_owner"],
        ended=bool(row["ended"]),
        paused=row["paused"],
        stamp=row["stamp"],
        continuation=row["continuation"],
        checkpoint_epoch=row["checkpoint_epoch"],
        write_id=row["write_id"],
        version=row["version"],
    )


def _owned(row: Row) -> Lease:
    return _lease({**row, "continuation": None})


def _fields(record: Checkpoint | Member) -> Row:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _member(row: Row) -> Member:
    return Member(**{**row, "stopping": bool(row["stopping"])})


def _checkpoint(row: Row) -> Checkpoint:
    return Checkpoint(**row)


_LEASE_COLUMNS = {
    "range_id": "text not null unique",
    "low": "text not null",
    "high": "text not null",
    "parents": "text not null",  # a JSON array
    "owner": "text",
    "incarnation": "text",
    "epoch": "integer not null",
    "renewals": "integer not null",
    "next_owner": "text",
    "ended": "integer not null",
    "paused": "text",
    "stamp": "real",  # seconds since 1970
    "continuation": "text not null",
    "checkpoint_epoch": "integer not null",
    "write_id": "text",
}
_LEASES = Kind(
    table="leases",
    columns=_LEASE_COLUMNS,
    to_row=_lease_row,
    from_row=_lease,
    left_out="continuation",
)
_OWNERSHIP = Kind(
    table="ownership",
    columns={name: x for name, x in _LEASE_COLUMNS.items() if name != "continuation"},
    to_row=_lease_row,
    from_row=_owned,
)
_CHECKPOINTS: Kind[Checkpoint] = Kind(
    table="checkpoints",
    columns={
        "range_id": "text not null unique",
        "continuation": "text not null",
        "epoch": "integer not null",
        "write_id": "text",
    },
    to_row=_fields,
    from_row=_checkpoint,
)
_MEMBERS: Kind[Member] = Kind(
    table="members",
    columns={
        "name": "text not null unique",
        "incarnation": "text not null",
        "heartbeats": "integer not null",
        "stopping": "integer not null",
        "stamp": "real",
        "address": "text not null",
    },
    to_row=_fields,
    from_row=_member,
)
