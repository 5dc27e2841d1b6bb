"""How leases, checkpoints and members lie in tables: columns that a person can read.

And change: SQLite keeps whatever it is given, in any column. So each value is read as what it
should be, or the row is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import Checkpoint, Lease, Member
from changefeed.leases.tables import Record

Row = Mapping[str, Any]
T = TypeVar("T")

_HEALTH = RangeHealth.__struct_fields__


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Record]):
    """How one kind of record lies in a table. The first column is its key.

    The statements are put together from the constants below (S608).
    """

    table: str
    columns: Mapping[str, str]
    to_row: Callable[[Record], Row]
    from_row: Callable[[Row], Record]  # raises ``msgspec.ValidationError``
    deleted: str  # what becomes of it without its row, for people
    left_out: str = ""  # a column that listings do without

    def __post_init__(self) -> None:
        assert self.left_out in ("", *self.columns), f"{self.left_out} is no column"
        assert self.left_out != self.key, f"without its key, no row of {self.table} is known"

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

    @property
    def changes(self) -> str:
        """Selects what has a later version than a given one, and the totals: at least a row."""
        return (
            "select * from (select count(*) as total, max(version) as newest"  # noqa: S608
            f" from {self.table}) left join ({self.selection(without=self.left_out)}"
            f" where {self.table}.version > cast(? as integer)) on true"
        )

    def record(self, row: Row, *, whole: bool) -> Record:
        """Read a row, which is ``whole`` with what listings leave out. Raise
        ``msgspec.ValidationError`` if it is not what was written there.
        """
        if whole and self.left_out and row[self.left_out] is None:
            raise msgspec.ValidationError(
                f"Expected `str`, got `null` - at `$.{self.left_out}`"
            )
        return self.from_row(row)

    def selection(self, *, without: str = "") -> str:
        names = ", ".join(f"null as {x}" if x == without else x for x in self.columns)
        return f"select cast(version as text) as version, {names} from {self.table}"  # noqa: S608


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
        **msgspec.structs.asdict(lease.health),
        "load": lease.load,
        "moved": lease.moved,
        "stamp": lease.stamp,
        "continuation": lease.continuation,
        "checkpoint_epoch": lease.checkpoint_epoch,
        "write_id": lease.write_id,
    }


def _lease(row: Row) -> Lease:
    values = {
        **row,
        "range": {
            "id": row["range_id"],
            "low": row["low"],
            "high": row["high"],
            "parents": _json("parents", row["parents"], tuple[RangeId, ...]),
        },
        "ended": _flag(row["ended"]),
        "moved": _flag(row["moved"]),
        "health": {name: row[name] for name in _HEALTH},
    }
    return msgspec.convert(values, Lease)


def _json(column: str, value: object, expected: type[T]) -> T:
    try:
        return msgspec.json.decode(msgspec.convert(value, str), type=expected)
    except (msgspec.DecodeError, RecursionError) as error:
        raise msgspec.ValidationError(f"{error} - in the JSON of `{column}`") from error


def _flag(value: object) -> object:
    """Return a truth value, which SQLite has not. Any other stays what it is, to be refused."""
    return bool(value) if value in (0, 1) else value


def _owned(row: Row) -> Lease:
    return _lease({**row, "continuation": None})


def _fields(record: Checkpoint | Member) -> Row:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _member(row: Row) -> Member:
    _json("settings", row["settings"] or "{}", dict[str, object])
    return msgspec.convert({**row, "stopping": _flag(row["stopping"])}, Member)


def _checkpoint(row: Row) -> Checkpoint:
    return msgspec.convert(row, Checkpoint)


FILE_CREATION = "create table if not exists file (id text not null)"
"""One row: a random name of this file, by which hosts know it from one that takes its place."""
FILE_NAMING = (
    "insert into file select lower(hex(randomblob(16))) where not exists (select 1 from file)"
)
FILE_MARKS = "select id, (select sum(seq) from sqlite_sequence) from file"
"""The name, and how many writes there were: SQLite never counts back."""

FEED_CREATION = "create table if not exists feed (identity text not null)"
"""One row: the feed that the leases of this file are about."""

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
    "last_progress": "real",
    "failing_since": "real",
    "stuck_since": "real",
    "last_error": "text",
    "load": "real",  # busy seconds in each second
    "moved": "integer not null",
}
LEASES = Kind(
    table="leases",
    columns=_LEASE_COLUMNS,
    to_row=_lease_row,
    from_row=_lease,
    deleted="its range then begins at feed.start",
    left_out="continuation",
)
OWNERSHIP = Kind(
    table="ownership",
    columns={name: x for name, x in _LEASE_COLUMNS.items() if name != "continuation"},
    to_row=_lease_row,
    from_row=_owned,
    deleted="it is then created again",
)
CHECKPOINTS: Kind[Checkpoint] = Kind(
    table="checkpoints",
    columns={
        "range_id": "text not null unique",
        "continuation": "text not null",
        "epoch": "integer not null",
        "write_id": "text",
    },
    to_row=_fields,
    from_row=_checkpoint,
    deleted="then say where its range goes on, with: changefeed reset",
)
MEMBERS: Kind[Member] = Kind(
    table="members",
    columns={
        "name": "text not null unique",
        "incarnation": "text not null",
        "heartbeats": "integer not null",
        "stopping": "integer not null",
        "stamp": "real",
        "address": "text not null",
        "software": "text not null",
        "settings": "text not null",  # a JSON object
    },
    to_row=_fields,
    from_row=_member,
    deleted="its host then writes another",
)
