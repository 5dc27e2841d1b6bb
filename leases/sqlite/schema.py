"""The one table of records, and views of it for people."""

from typing import Final

_RECORDS: Final = """
create table if not exists records (
    version integer primary key autoincrement,
    kind text not null,
    key text not null,
    body text not null,
    position text,
    unique (kind, key))
"""
_OWNED: Final = ("owner", "epoch", "ended", "paused", "next_owner", "health.last_error")


def _view(name: str, kind: str, key: str, *fields: str, rest: str = "") -> str:
    columns = [f"key as {key}"]
    columns += [f"json_extract(body, '$.{x}') as {x.rpartition('.')[2]}" for x in fields]
    written = "datetime(json_extract(body, '$.stamp'), 'unixepoch') as written"
    return (
        f"create view if not exists {name} as select {', '.join(columns)}, {written}{rest}"  # noqa: S608 - of constants
        f" from records where kind = '{kind}'"
    )


CREATION: Final = (
    # One row: a random name of this file, by which hosts know it from one that takes its place.
    "create table if not exists file (id text not null)",
    "insert into file select lower(hex(randomblob(16))) where not exists (select 1 from file)",
    _RECORDS,
    _view("leases", "lease", "range_id", *_OWNED, rest=", position"),
    _view("ownership", "ownership", "range_id", *_OWNED),
    _view("checkpoints", "checkpoint", "range_id", "epoch", rest=", position"),
    _view("members", "host", "name", "address", "software"),
)
FILE_MARKS: Final = "select id, (select sum(seq) from sqlite_sequence) from file"
"""The name, and how many writes there were: SQLite never counts back."""
