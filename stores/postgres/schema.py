"""The one table of records with views of it for people, and their version.

All fleets of a schema share it, kept apart by ``fleet``. ``id`` is the key (or a hash, if that
is longer than an index takes). ``version`` is a random token of each write. Keys and positions
hold ``\\0`` for NUL and ``\\\\`` for a backslash, since PostgreSQL has no NUL in texts.
"""

from collections.abc import Sequence
from typing import Final

from changefeed.runtime.errors import StoreMissing, StoreRefused
from changefeed.stores.kinds import VIEWS, View
from changefeed.stores.postgres.connection import Database

_LOCK = int.from_bytes(b"CFHL", "big")  # an advisory lock: hosts that start together take turns
VERSION: Final = 7
"""The only version of the tables that is used. Lower numbers were never released."""


def _view(view: View) -> str:
    columns = ["fleet", f"key as {view.key}"]
    columns += [f"body::json #>> '{{{{{','.join(x)}}}}}' as {x[-1]}" for x in view.fields]
    columns.append("to_timestamp((body::json ->> 'stamp')::float8) as written")
    columns += ["position"] * view.has_position
    return (
        f"create view {{schema}}.{view.name} as select {', '.join(columns)}"  # noqa: S608 - of constants
        f" from {{schema}}.records where kind = '{view.kind}'"
    )


_CREATION: Sequence[str] = (
    """create table {schema}.records (
        fleet text not null,
        kind text not null,
        id text not null,
        version text not null,
        key text not null,
        body text not null,
        position text,
        primary key (fleet, kind, id))""",
    # Leases are rewritten all the time and never grow: leave room on each page, so that a
    # renewal is a heap-only update, and vacuum often.
    """alter table {schema}.records set (fillfactor = 50,
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)""",
    *map(_view, VIEWS),
)
"""``{schema}`` is the quoted schema."""


def quoted(name: str) -> str:
    """Return a name as SQL spells it."""
    assert "\0" not in name, f"{name!r} would end at its NUL"
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


async def stored_version(database: Database, schema: str) -> int | None:
    """Return the version of the tables, or ``None`` if there are none."""
    named = f"{quoted(schema)}.schema_version"
    found = await database.one("select to_regclass($1) is not null as there", named)
    if found is None or not found["there"]:
        return None
    row = await database.one(f"select version from {named}")  # noqa: S608 - a quoted name
    return None if row is None else int(row["version"])


async def require_schema(database: Database, schema: str) -> None:
    """Raise ``StoreMissing`` where there are no tables, ``StoreRefused`` unless they
    have the version that we know.
    """
    version = await stored_version(database, schema)
    if version is None:
        raise StoreMissing(
            f"{database.where}: there are no tables of ours in schema {schema!r}; let a host "
            "create them (of leases with --set=leases.create=true), by a role that may"
        )
    _require_version(database, schema, version)


async def create_schema(database: Database, schema: str) -> None:
    """Create the tables if there are none; refuse those of another version."""
    version = await stored_version(database, schema)
    if version is None:  # else a role without CREATE can go on with the flag set
        version = await _created(database, schema)
    _require_version(database, schema, version)


async def _created(database: Database, schema: str) -> int:
    """Create the tables, unless another host was quicker; return their version."""
    name = quoted(schema)
    async with database.transaction() as connection:
        await connection.execute(f"select pg_advisory_xact_lock({_LOCK})")
        there = await connection.fetchval(
            "select exists (select 1 from pg_namespace where nspname = $1)", schema
        )
        if not there:
            await connection.execute(f"create schema {name}")
        await connection.execute(
            f"create table if not exists {name}.schema_version (version integer not null)"
        )
        version = await connection.fetchval(
            f"select max(version) from {name}.schema_version"  # noqa: S608 - a quoted name
        )
        assert there or version is None, f"schema {schema!r} is new, and has tables"
        if version is not None:
            return int(version)
        for statement in _CREATION:
            await connection.execute(statement.format(schema=name))
        await connection.execute(
            f"insert into {name}.schema_version values ($1)",  # noqa: S608 - as above
            VERSION,
        )
    return VERSION


def _require_version(database: Database, schema: str, version: int) -> None:
    if version == VERSION:
        return
    advice = (
        "upgrade changefeed-host" if version > VERSION else "name another schema in the address"
    )
    raise StoreRefused(
        f"{database.where}: the tables in schema {schema!r} have version {version}, and "
        f"this version of changefeed-host uses version {VERSION} only: {advice}"
    )
