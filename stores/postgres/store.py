"""Records as rows, and the statements that write them if their version is unchanged."""

import re
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from changefeed.runtime.errors import StoreRefused
from changefeed.runtime.unique_names import unique_name
from changefeed.stores.postgres.connection import Database, Row
from changefeed.stores.postgres.schema import quoted
from changefeed.stores.store import WHOLE, Listed, Record, Store, short_key

_MAX_KEY = 256
_TIMELINE = "(select left(pg_walfile_name(pg_current_wal_lsn()), 8))"


class PostgresStore(Store):
    """The records of one fleet. Every call is one statement.

    A listing of what was written since asks for the rows of transactions that were not over
    when the token was given. The token names the timeline of the server, too: after a failover
    transactions that were lost with the old one have numbers that will come again. A server
    that is only like PostgreSQL may know nothing of this: then all is listed, always.
    """

    def __init__(self, database: Database, schema: str, fleet: str) -> None:
        self.database = database
        self._fleet = encode(fleet)
        self._can_list_changes = True
        table = self._table = f"{quoted(schema)}.records"
        # Put together from a quoted name: nothing else comes from outside (S608).
        these = f"from {table} where fleet = $1 and kind = any($2)"
        which = "fleet = $1 and kind = $2 and id = $3"
        since = "age(nullif($4::text, '')::xid)"
        self._all = f"select kind, key, version, body, null as position {these}"
        self._changes = (
            f"select total, timeline, oldest, x.* from (select count(*) as total,"  # noqa: S608
            f" {_TIMELINE} as timeline,"
            " pg_snapshot_xmin(pg_current_snapshot())::xid::text as oldest"
            f" {these}) as here left join ({self._all}"
            f" and ({_TIMELINE} <> $3 or {since} < 0 or age(xmin) <= {since})) as x on true"
        )
        self._get = f"select kind, key, version, body, position from {table} where {which}"  # noqa: S608
        self._delete = f"delete from {table} where {which} and version = $4 returning 1"  # noqa: S608

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        if self._can_list_changes:
            try:
                return await self._listed(sorted(kinds), since, put)
            except StoreRefused:
                pass  # what else is wrong shows when all is asked for
        written = None if put is None else await self.put(put)
        rows = await self.database.fetch(self._all, self._fleet, sorted(kinds))
        self._can_list_changes = False
        records = [_record(x) for x in rows]
        return Listed(records=records, total=len(records), token=WHOLE, put=written)

    async def _listed(self, kinds: Sequence[str], since: str, put: Record | None) -> Listed:
        timeline, _, oldest = since.partition(":")
        asked: list[object] = [self._fleet, kinds, timeline, oldest]
        statement = self._changes
        if put is not None:
            write, values = self._writing(put, first=len(asked) + 1)
            statement = (
                f"with put as ({write}) select x.*, put.key as put, put.version as put_version,"  # noqa: S608 - put together as above
                f" put.position as put_position from ({statement}) as x left join put on true"
            )
            asked += values
        rows = await self.database.fetch(statement, *asked)
        assert rows, "the totals come even where nothing has changed"
        first = rows[0]
        records = [_record(x) for x in rows if x["version"] is not None]
        total, written = first["total"], None
        if put is not None and first["put"] is not None:
            # A statement does not see what it writes itself.
            written = _record(
                {
                    "kind": put.kind,
                    "key": first["put"],
                    "version": first["put_version"],
                    "body": put.body.decode(),
                    "position": first["put_position"],
                }
            )
            same = put.kind, put.key
            records = [x for x in records if (x.kind, x.key) != same]
            records.append(replace(written, position=None))
            total += not put.version
        token = f"{first['timeline']}:{first['oldest']}"
        return Listed(records=records, total=total, token=token, put=written)

    async def get(self, kind: str, key: str) -> Record | None:
        return _only(await self.database.one(self._get, self._fleet, kind, _id(key)))

    async def put(self, record: Record) -> Record | None:
        statement, values = self._writing(record)
        return _only(await self.database.one(statement, *values))

    async def delete(self, kind: str, key: str, version: str) -> bool:
        values = self._fleet, kind, _id(key), encode(version)
        return await self.database.one(self._delete, *values) is not None

    def _writing(self, record: Record, *, first: int = 1) -> tuple[str, Sequence[object]]:
        """Return what writes a record if its version is unchanged, and the parameters, of which
        the ``first`` has that number.
        """
        position = None if record.position is None else encode(record.position)
        values: list[object] = [self._fleet, record.kind, _id(record.key), unique_name()]
        values += [encode(record.key), record.body.decode(), position]
        fleet, kind, key, version, *rest, old = (f"${first + n}" for n in range(8))
        answer = "returning kind, key, version, body, position"
        if not record.version:
            marks = ", ".join((fleet, kind, key, version, *rest))
            return (
                f"insert into {self._table} (fleet, kind, id, version, key, body, position)"  # noqa: S608
                f" values ({marks}) on conflict do nothing {answer}"
            ), values
        return (
            f"update {self._table} set version = {version}, key = {rest[0]}, body = {rest[1]},"  # noqa: S608
            f" position = coalesce({rest[2]}, position) where fleet = {fleet} and kind = {kind}"
            f" and id = {key} and version = {old} {answer}"
        ), [*values, encode(record.version)]


def _only(row: Row | None) -> Record | None:
    assert row is None or row["version"], f"{row} was stored without a version"
    return None if row is None else _record(row)


def _record(row: Row) -> Record:
    position = row["position"]
    return Record(
        kind=row["kind"],
        key=decode(row["key"]),
        body=row["body"].encode(),
        position=None if position is None else decode(position),
        version=row["version"],
    )


def _id(key: str) -> str:
    return encode(short_key(key, _MAX_KEY))


def encode(text: str) -> str:
    """Write a text without NUL, which PostgreSQL has none of."""
    encoded = text.replace("\\", "\\\\").replace("\0", "\\0")
    assert decode(encoded) == text, f"{text!r} would come back as {decode(encoded)!r}"
    return encoded


def decode(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda x: "\0" if x[1] == "0" else x[1], text)
