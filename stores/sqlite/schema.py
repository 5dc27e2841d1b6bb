"""The one table of records, and views of it for people."""

from typing import Final

from changefeed.stores.kinds import VIEWS, View

_RECORDS: Final = """
create table if not exists records (
    version integer primary key autoincrement,
    kind text not null,
    key text not null,
    body text not null,
    position text,
    unique (kind, key))
"""


def _view(view: View) -> str:
    columns = [f"key as {view.key}"]
    columns += [f"json_extract(body, '$.{'.'.join(x)}') as {x[-1]}" for x in view.fields]
    columns.append("datetime(json_extract(body, '$.stamp'), 'unixepoch') as written")
    columns += ["position"] * view.has_position
    return (
        f"create view if not exists {view.name} as select {', '.join(columns)}"  # noqa: S608 - of constants
        f" from records where kind = '{view.kind}'"
    )


CREATION: Final = (
    # One row: a random name of this file, by which hosts know it from one that takes its place.
    "create table if not exists file (id text not null)",
    "insert into file select lower(hex(randomblob(16))) where not exists (select 1 from file)",
    _RECORDS,
    *map(_view, VIEWS),
)
FILE_MARKS: Final = "select id, (select sum(seq) from sqlite_sequence) from file"
"""The name, and how many writes there were: SQLite never counts back."""
