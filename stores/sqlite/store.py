"""Records in a SQLite file: any number of processes on one machine.

One row for each record in ``records``, and views of it that a person can read: ``select
range_id, owner, position from leases``. Every write is one transaction that begins as a writer,
so what it decided on is what it overwrites. The version of a row is its row number, which
SQLite's ``autoincrement`` never uses twice, not even for a row that was deleted and inserted
again. Waiting for other writers happens off the event loop, for five seconds.

The file is in WAL mode with ``synchronous=normal``. A kill of any process loses nothing.
A power cut may lose the last writes of all of them, consistently: checkpoints are then a
little older, and some changes are delivered again. Waiting for the disk at each renewal
would buy little for that. A file that keeps changes themselves is opened with
``synchronous=full``: each write is on the disk when it returns.

Limits: WAL needs shared memory, so all hosts must be on one machine, and the file on a
local disk. One row that cannot be read ends the hosts that read it, with its name. A file
that is deleted or replaced under running hosts ends them: those that went on in the old one
would be a second fleet. So does the ``-wal`` or ``-shm`` beside it. So does one that is
overwritten in its place (``cp``), at the next call after half a second: each file has a
random name in it.
"""

import sqlite3
from collections.abc import Collection
from functools import partial

import msgspec
from msgspec.structs import replace

from changefeed.stores.sqlite.file import Row, SqliteFile, rows
from changefeed.stores.store import WHOLE, Listed, Record, Store, written_over

_GET = (
    "select cast(version as text) as version, kind, key, body, position from records"
    " where kind = ? and key = ?"
)
_PUT = "insert or replace into records (kind, key, body, position) values (?, ?, ?, ?)"
_DELETE = "delete from records where kind = ? and key = ?"


class _Row(msgspec.Struct, frozen=True):
    """A row as it should be. SQLite keeps whatever it is given, in any column."""

    version: str
    kind: str
    key: str
    body: str
    position: str | None = None


class SqliteStore(Store):
    """The records of a file that is open."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        # Two steps: a listing of many records must not keep other hosts from writing.
        written = None if put is None else await self.put(put)
        return await self._file.read(partial(self._select, kinds, since, written))

    async def get(self, kind: str, key: str) -> Record | None:
        return await self._file.read(partial(self._get, kind, key))

    async def put(self, record: Record) -> Record | None:
        return await self._file.change(partial(self._put, record))

    async def delete(self, kind: str, key: str, version: str) -> bool:
        return await self._file.change(partial(self._delete, kind, key, version))

    # What takes a connection is done in the thread of the file.

    def _select(
        self,
        kinds: Collection[str],
        since: str,
        put: Record | None,
        connection: sqlite3.Connection,
    ) -> Listed:
        these = f"kind in ({', '.join('?' * len(kinds))})"
        # Put together from question marks: nothing comes from outside (S608).
        found = rows(
            connection,
            "select * from (select count(*) as total, max(version) as newest"  # noqa: S608
            f" from records where {these}) left join (select version as row,"
            " cast(version as text) as version, kind, key, body from records"
            f" where {these} and version > cast(? as integer) order by row) on true",
            *kinds,
            *kinds,
            since or "0",
        )
        assert found, "the totals come even where nothing has changed"
        records = [self._record(x) for x in found if x["version"] is not None]
        newest = max(int(since or 0), found[0]["newest"] or 0)
        return Listed(records=records, total=found[0]["total"], token=str(newest), put=put)

    def _get(self, kind: str, key: str, connection: sqlite3.Connection) -> Record | None:
        found = rows(connection, _GET, kind, key)
        return self._record(found[0]) if found else None

    def _put(self, record: Record, connection: sqlite3.Connection) -> Record | None:
        stored = self._get(record.kind, record.key, connection)
        wanted = written_over(stored, record)
        if wanted is None:
            return None
        values = wanted.kind, wanted.key, wanted.body.decode(), wanted.position
        version = str(connection.execute(_PUT, values).lastrowid)
        assert version != record.version, f"{values[:2]}: {version} again"
        return replace(wanted, version=version)

    def _delete(
        self, kind: str, key: str, version: str, connection: sqlite3.Connection
    ) -> bool:
        stored = self._get(kind, key, connection)
        if stored is None or stored.version != version:
            return False
        deleted = connection.execute(_DELETE, (kind, key)).rowcount
        assert deleted == 1, f"{kind} {key!r}: {deleted} rows were deleted"
        return True

    def _record(self, row: Row) -> Record:
        try:
            found = msgspec.convert(row, _Row)
            body = found.body.encode()
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise self._refusal(row["kind"], row["key"], error) from error
        return Record(
            kind=found.kind,
            key=found.key,
            body=body,
            position=found.position,
            version=found.version,
        )

    def _refusal(self, kind: object, key: object, error: Exception) -> Exception:
        return self._file.refusal(
            f"the row {key!r} of kind {kind!r} in table records cannot be read"
            f" ({error}): it is damaged, or was changed by hand. Mend it, or delete it, while"
            " no host runs"
        )
