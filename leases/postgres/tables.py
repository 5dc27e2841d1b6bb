"""Records as rows, and the statements that write them if their version is unchanged."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic
from uuid import uuid4

import msgspec

from changefeed.feeds.feed import FeedRange
from changefeed.leases.conditional import short_key
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import Checkpoint, Lease, Member, Version
from changefeed.leases.postgres.connection import Database, Row
from changefeed.leases.postgres.schema import quoted
from changefeed.leases.tables import Record, TableChanges

_LONGEST_KEY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Record]):
    """How one kind of record lies in a table. ``kept`` are columns that ``null`` leaves."""

    table: str
    columns: Sequence[str]
    to_row: Callable[[Record], Mapping[str, Any]]
    from_row: Callable[[Mapping[str, Any]], Record]
    kept: str = ""

    def __post_init__(self) -> None:
        assert self.kept in ("", *self.columns), f"{self.kept} is no column of {self.table}"
        assert len({*self.columns}) == len(self.columns), f"{self.table} has a column twice"


class PostgresTable(Generic[Record]):
    """The records of one fleet: a ``ConditionalTable``. Every write is one statement."""

    def __init__(self, database: Database, kind: Kind[Record], schema: str, fleet: str) -> None:
        self._database = database
        self._kind: Kind[Record] = kind
        self.fleet: str = encode(fleet)
        table = f"{quoted(schema)}.{kind.table}"
        names = ", ".join(kind.columns)
        seen = ", ".join(f"null as {x}" if x == kind.kept else x for x in kind.columns)
        marks = ", ".join(f"${n}" for n in range(4, 4 + len(kind.columns)))
        sets = ", ".join(
            f"{x} = coalesce(${n}, {x})" if x == kind.kept else f"{x} = ${n}"
            for n, x in enumerate(kind.columns, start=5)
        )
        which = "fleet = $1 and key = $2"
        # Put together from the columns below and quoted names: nothing comes from outside.
        self.selection = f"select version, {seen} from {table} where fleet = $1"  # noqa: S608
        self._here = f"from {table} where fleet = $1"
        self._seen = f"version, {seen}"
        self._can_list_changes = True
        self._get = f"select version, {names} from {table} where {which}"  # noqa: S608
        self._insert = (
            f"insert into {table} (fleet, key, version, {names}) values ($1, $2, $3, {marks})"  # noqa: S608
            f" on conflict do nothing returning version, {names}"
        )
        self._update = (
            f"update {table} set version = $3, {sets} where {which} and version = $4"  # noqa: S608
            f" returning version, {names}"
        )
        self._delete = f"delete from {table} where {which} and version = $3 returning 1"  # noqa: S608
        self._advance = (
            f"update {table} set version = $3, continuation = $5, checkpoint_epoch = $6,"  # noqa: S608
            f" write_id = $7 where {which} and version = $4 and epoch = $6"
            f" returning version, {names}"
        )

    async def all(self) -> Sequence[Record]:
        return [self.read(x) for x in await self._database.fetch(self.selection, self.fleet)]

    async def changes_since(self, token: str) -> TableChanges[Record] | None:
        """Ask for the rows of transactions that were not over when ``token`` was given.

        A token names the timeline of the server, too: after a failover transactions that were
        lost with the old one have numbers that will come again. A server that is only like
        PostgreSQL may know nothing of this: it is asked once.
        """
        if not self._can_list_changes:
            return None
        try:
            rows = await self._database.fetch(self.changes(2), self.fleet, *since(token))
        except ContainerRefused:
            self._can_list_changes = False
            return None
        return self.changed(rows)

    def changes(self, first: int) -> str:
        """Select what was written since a token, whose parameters begin with ``first``."""
        timeline = "(select left(pg_walfile_name(pg_current_wal_lsn()), 8))"
        since = f"age(nullif(${first + 1}::text, '')::xid)"
        return (
            f"select total, timeline, oldest, x.* from (select count(*) as total,"  # noqa: S608
            f" {timeline} as timeline,"
            " pg_snapshot_xmin(pg_current_snapshot())::xid::text as oldest"
            f" {self._here}) as here left join (select {self._seen} {self._here}"
            f" and ({timeline} <> ${first} or {since} < 0 or age(xmin) <= {since})) as x"
            " on true"
        )

    def changed(self, rows: Sequence[Row]) -> TableChanges[Record]:
        """Read what ``changes`` selected."""
        written = [self.read(x) for x in rows if x["version"] is not None]
        first = rows[0]
        token = f"{first['timeline']}:{first['oldest']}"
        return TableChanges(records=written, total=first["total"], token=token)

    async def get(self, key: str) -> Record | None:
        return self._only(await self._database.one(self._get, self.fleet, _key(key)))

    async def insert(self, key: str, record: Record) -> Record | None:
        return self._only(await self._database.one(self._insert, *self._insertion(key, record)))

    async def update(self, key: str, record: Record) -> Record | None:
        return self._only(
            await self._database.one(self._update, *self._replacement(key, record))
        )

    def write(self, key: str, record: Record) -> tuple[str, Sequence[object]]:
        """Return what writes a record if its version is unchanged, and the parameters."""
        if not record.version:
            return self._insert, self._insertion(key, record)
        return self._update, self._replacement(key, record)

    async def delete(self, key: str, version: Version) -> bool:
        row = await self._database.one(self._delete, self.fleet, _key(key), encode(version))
        return row is not None

    async def advance(self, key: str, lease: Record) -> Record | None:
        """Write a checkpoint; only the table of whole leases has what it takes."""
        assert self._kind.kept, f"there are no checkpoints in table {self._kind.table}"
        row = self._kind.to_row(lease)
        assert row["continuation"] is not None, f"lease {key!r}: a checkpoint of nothing"
        return self._only(
            await self._database.one(
                self._advance,
                *(self.fleet, _key(key), uuid4().hex, encode(lease.version)),
                *(_encoded(row[x]) for x in ("continuation", "epoch", "write_id")),
            )
        )

    def _insertion(self, key: str, record: Record) -> Sequence[object]:
        return [self.fleet, _key(key), uuid4().hex, *self._values(record)]

    def _replacement(self, key: str, record: Record) -> Sequence[object]:
        old = encode(str(record.version))
        return [self.fleet, _key(key), uuid4().hex, old, *self._values(record)]

    def _values(self, record: Record) -> Sequence[object]:
        row = self._kind.to_row(record)
        assert row.keys() >= {*self._kind.columns}, f"no values for all of {self._kind.columns}"
        return [_encoded(row[x]) for x in self._kind.columns]

    def _only(self, row: Row | None) -> Record | None:
        return None if row is None else self.read(row)

    def read(self, row: Row) -> Record:
        decoded = {name: _decoded(row[name]) for name in self._kind.columns}
        version = Version(row["version"])
        return replace(self._kind.from_row(decoded), version=version)


def since(token: str) -> Sequence[str]:
    """Return a token as the parameters of ``changes``."""
    timeline, _, oldest = token.partition(":")
    return timeline, oldest


class PostgresFeedText:
    """The row of a fleet in ``feeds``: a ``FeedText``."""

    def __init__(self, database: Database, schema: str, fleet: str) -> None:
        self._database = database
        self._fleet = encode(fleet)
        table = f"{quoted(schema)}.feeds"
        self._get = f"select identity from {table} where fleet = $1"  # noqa: S608 - as above
        self._put = (
            f"insert into {table} values ($1, $2)"  # noqa: S608 - as above
            " on conflict (fleet) do update set identity = excluded.identity"
        )

    async def get(self) -> str | None:
        row = await self._database.one(self._get, self._fleet)
        return None if row is None else decode(row["identity"])

    async def put(self, identity: str) -> None:
        await self._database.fetch(self._put, self._fleet, encode(identity))


def encode(text: str) -> str:
    """Write a text without NUL, which PostgreSQL has none of."""
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def decode(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda x: "\0" if x[1] == "0" else x[1], text)


def _key(text: str) -> str:
    return encode(short_key(text, _LONGEST_KEY))


def _encoded(value: object) -> object:
    if isinstance(value, str):
        return encode(value)
    return [encode(x) for x in value] if isinstance(value, tuple) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return decode(value)
    return tuple(map(decode, value)) if isinstance(value, list) else value


_RANGE = ("range_id", "low", "high", "parents")
_HEALTH = RangeHealth.__struct_fields__


def _lease_row(lease: Lease) -> Mapping[str, Any]:
    place = lease.range
    row = {x.name: getattr(lease, x.name) for x in fields(lease)}
    return {
        **row,
        **msgspec.structs.asdict(lease.health),
        "range_id": place.id,
        "low": place.low,
        "high": place.high,
        "parents": place.parents,
    }


def _lease(row: Mapping[str, Any]) -> Lease:
    place = FeedRange(
        id=row["range_id"], low=row["low"], high=row["high"], parents=row["parents"]
    )
    health = RangeHealth(**{x: row[x] for x in _HEALTH})
    rest = {x: y for x, y in row.items() if x not in (*_RANGE, *_HEALTH)}
    return Lease(range=place, health=health, **rest)


def _fields(record: Checkpoint | Member) -> Mapping[str, Any]:
    return {x.name: getattr(record, x.name) for x in fields(record)}


def _checkpoint(row: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(**row)


def _member(row: Mapping[str, Any]) -> Member:
    return Member(**row)


_OWNED = (
    *_RANGE,
    *("owner", "incarnation", "epoch", "renewals", "next_owner", "ended", "paused", "stamp"),
    *("checkpoint_epoch", "write_id"),
    *_HEALTH,
    *("load", "moved"),
)
LEASES = Kind(
    table="leases",
    columns=("continuation", *_OWNED),
    to_row=_lease_row,
    from_row=_lease,
    kept="continuation",
)
OWNERSHIP = Kind(table="ownership", columns=_OWNED, to_row=_lease_row, from_row=_lease)
CHECKPOINTS: Kind[Checkpoint] = Kind(
    table="checkpoints",
    columns=("range_id", "continuation", "epoch", "write_id"),
    to_row=_fields,
    from_row=_checkpoint,
)
MEMBERS: Kind[Member] = Kind(
    table="members",
    columns=(
        *("name", "incarnation", "heartbeats", "stopping", "stamp", "address"),
        *("software", "settings"),
    ),
    to_row=_fields,
    from_row=_member,
)
