"""Leases in a SQLite file: any number of host processes on one machine.

One row for each lease, in columns a person can read: ``select range_id, owner,
continuation from leases``. Every write is one transaction that begins as a writer, so
what it decided on is what it overwrites. The version of a row is its row number, which
SQLite's ``autoincrement`` never uses twice, not even for a row that was deleted and
recreated. Waiting for other writers happens off the event loop, for ``busy_timeout``
seconds.

The file is in WAL mode with ``synchronous=normal``. A kill of any process loses nothing.
A power cut may lose the last writes of all of them, consistently: checkpoints are then a
little older, and some changes are delivered again. Waiting for the disk at each renewal
would buy little for that.

Limits: WAL needs shared memory, so all hosts must be on one machine, and the file on a
local disk. One row that cannot be read ends the hosts that read it, with its name. A file
that is deleted or replaced under running hosts ends them: those that went on in the old one
would be a second fleet. So does the ``-wal`` or ``-shm`` beside it. So does one that is
overwritten in its place (``cp``), at the next call after half a second: each file has a
random name in it.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, Self

import msgspec

from changefeed.leases.errors import ContainerRefused, MemberConflict
from changefeed.leases.lease import Lease, Member, Version
from changefeed.leases.listing import ListedFleet
from changefeed.leases.sqlite.file import SqliteFile, rows
from changefeed.leases.sqlite.schema import (
    CHECKPOINTS,
    FEED_CREATION,
    LEASES,
    MEMBERS,
    OWNERSHIP,
    Kind,
    Row,
)
from changefeed.leases.tables import (
    KEEP,
    Decision,
    Record,
    TableChanges,
    TableCheckpoints,
    TableLeases,
    TableOwnership,
    listed_changes,
)

_BUSY_TIMEOUT = 5.0


class SqliteTable(Generic[Record]):
    """The records of one kind. What takes a connection is done in the thread of the file."""

    def __init__(self, file: SqliteFile, kind: Kind[Record]) -> None:
        self._file = file
        self._kind: Kind[Record] = kind
        self._all = kind.selection(without=kind.left_out)
        self._one = f"{kind.selection()} where {kind.key} = ?"

    async def all(self) -> Sequence[Record]:
        return await self._file.read(self.select_all)

    async def changes_since(self, token: str) -> TableChanges[Record]:
        return await self._file.read(partial(self.select_changes, token))

    async def get(self, key: str) -> Record | None:
        return await self._file.read(partial(self._select, key))

    async def change(
        self, key: str, decide: Callable[[Record | None], Decision[Record]]
    ) -> Record | None:
        return await self._file.change(partial(self.write, key, decide))

    def select_all(self, connection: sqlite3.Connection) -> Sequence[Record]:
        return [self._record(row) for row in rows(connection, self._all)]

    def select_changes(
        self, token: str, connection: sqlite3.Connection
    ) -> TableChanges[Record]:
        found = rows(connection, self._kind.changes, token or "0")
        assert found, "the totals come even where nothing has changed"
        total, newest = found[0]["total"], found[0]["newest"] or 0
        written = [self._record(x) for x in found if x["version"] is not None]
        return TableChanges(
            records=written, total=total, token=str(max(int(token or 0), newest))
        )

    def write(
        self,
        key: str,
        decide: Callable[[Record | None], Decision[Record]],
        connection: sqlite3.Connection,
    ) -> Record | None:
        """Write what ``decide`` makes of a record; in a transaction of the only writer."""
        stored = self._select(key, connection)
        wanted = decide(stored)
        if wanted is KEEP:
            return stored
        if wanted is None:
            connection.execute(self._kind.deletion, (key,))
            return None
        row = self._kind.to_row(wanted)
        assert row[self._kind.key] == key, (
            f"{key!r} would be written as {row[self._kind.key]!r}"
        )
        try:
            row_id = connection.execute(self._kind.insertion, row).lastrowid
        except OverflowError as error:  # it counted on from what a person wrote there
            raise self._refusal(key, "counted on", error) from error
        return replace(wanted, version=Version(str(row_id)))

    def _select(self, key: str, connection: sqlite3.Connection) -> Record | None:
        found = rows(connection, self._one, key)
        return self._record(found[0], whole=True) if found else None

    def _record(self, row: Row, *, whole: bool = False) -> Record:
        try:
            return self._kind.record(row, whole=whole)
        except msgspec.ValidationError as error:
            raise self._refusal(row[self._kind.key], "read", error) from error

    def _refusal(self, key: object, done: str, error: Exception) -> ContainerRefused:
        kind = self._kind
        return self._file.refusal(
            f"the row {key!r} of table {kind.table} cannot be {done} ({error}): it is damaged, "
            f"or was changed by hand. Mend it, or delete it ({kind.deleted}), while no host "
            "runs"
        )


class SqliteFleet(TableOwnership):
    """Leases and members in one file."""

    def __init__(self, file: SqliteFile, kind: Kind[Lease]) -> None:
        self._file = file
        self._of_leases = SqliteTable(file, kind)
        self._of_members = SqliteTable(file, MEMBERS)
        super().__init__(self._of_leases, self._of_members)

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet | None:
        # Two steps: a listing of many leases must not keep other hosts from writing.
        written = None
        if heartbeat is not None:
            with suppress(MemberConflict):
                written = await self.put_member(heartbeat)
        fleet = await self._file.read(partial(self._select_fleet, token))
        return replace(fleet, heartbeat=written)

    def _select_fleet(self, token: str, connection: sqlite3.Connection) -> ListedFleet:
        changes = self._of_leases.select_changes(token, connection)
        return ListedFleet(
            changes=listed_changes(changes),
            members=self._of_members.select_all(connection),
            heartbeat=None,
        )


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


class _OfFeed(_InFile):
    """Keeps which feed the leases are about."""

    async def feed_identity(self) -> str | None:
        found = await self._file.select("select identity from feed")
        identity = found[0]["identity"] if found else None
        if identity is not None and not isinstance(identity, str):
            raise self._file.refusal(
                "table feed does not say which feed its leases are about: it is damaged, or "
                "was changed by hand. Restore the file"
            )
        return identity

    async def keep_feed_identity(self, identity: str) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute("delete from feed")
            connection.execute("insert into feed (identity) values (?)", (identity,))

        await self._file.change(write)


class SqliteLeases(_OfFeed, SqliteFleet, TableLeases):
    """Ownership and checkpoints in one row of ``leases``; hosts in ``members``."""

    def __init__(self, path: Path | str, *, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        tables = (LEASES.creation, MEMBERS.creation, FEED_CREATION)
        super().__init__(SqliteFile(path, busy_timeout, tables), LEASES)


class SqliteOwnership(_OfFeed, SqliteFleet):
    """Ownership alone, in ``ownership``; hosts in ``members``."""

    def __init__(self, path: Path | str, *, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        tables = (OWNERSHIP.creation, MEMBERS.creation, FEED_CREATION)
        super().__init__(SqliteFile(path, busy_timeout, tables), OWNERSHIP)


class SqliteCheckpoints(_InFile, TableCheckpoints):
    """Checkpoints alone, in ``checkpoints``."""

    def __init__(self, path: Path | str, *, busy_timeout: float = _BUSY_TIMEOUT) -> None:
        self._file = SqliteFile(path, busy_timeout, (CHECKPOINTS.creation,))
        super().__init__(SqliteTable(self._file, CHECKPOINTS))
