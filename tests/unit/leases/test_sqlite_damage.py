"""Rows that were damaged or changed by hand are refused by name, and never guessed at."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import HostName, Lease, Version
from changefeed.leases.sqlite import SqliteCheckpoints, SqliteLeases, SqliteOwnership
from changefeed.leases.sqlite.schema import CHECKPOINTS, LEASES, MEMBERS, OWNERSHIP, Kind
from tests.support import make

R0, R1 = RangeId("r0"), RangeId("r1")
NEW, OTHER = make.lease("r0", at="c0"), make.lease("r1", at="c0")
CHECKPOINT = make.checkpoint("r0")
ANNA = make.member("anna")
KINDS: Sequence[Kind[Any]] = (LEASES, OWNERSHIP, CHECKPOINTS, MEMBERS)

pytestmark = pytest.mark.real_time

NO_TEXT = ("x'ff'", "x'41'", "cast(x'ff' as text)")
NO_FLAG = ("2", "-1", "0.5", "''", "'true'", "x'01'")
NO_INTEGER = ("1.5", "''", "'many'", "x'01'", "1e300")
NO_REAL = ("''", "'now'", "x'01'")
WRONG = {
    "text": NO_TEXT,
    "integer": NO_INTEGER,
    "real": NO_REAL,
    "ended": NO_FLAG,
    "moved": NO_FLAG,
    "stopping": NO_FLAG,
    "parents": (*NO_TEXT, "''", "'{}'", "'null'", "'[1]'", "'[\"r'", "'[\"\\ud800\"]'"),
    "settings": (*NO_TEXT, "'[]'", "'{'", "'{\"a\":' || replace(zeroblob(20000), x'00', '[')"),
}
"""What no row of ours can hold, by the column or its type, as SQLite keeps it there."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


Store = SqliteLeases | SqliteOwnership | SqliteCheckpoints
Way = Callable[[], Awaitable[object]]


def opened(kind: Kind[Any], path: Path) -> Store:
    if kind is CHECKPOINTS:
        return SqliteCheckpoints(path)
    return SqliteOwnership(path) if kind is OWNERSHIP else SqliteLeases(path)


@asynccontextmanager
async def filled(kind: Kind[Any], path: Path) -> AsyncIterator[Store]:
    """Open a file with one record."""
    async with opened(kind, path) as store:
        if isinstance(store, SqliteCheckpoints):
            await store.create(CHECKPOINT)
        else:
            await store.create(NEW)
            await store.put_member(ANNA)
        yield store


def ways_to_read(kind: Kind[Any], store: Store, column: str) -> list[Way]:
    """Return all that reads such a row with that column, writers among them."""
    if isinstance(store, SqliteCheckpoints):
        return [lambda: store.read(R0), lambda: store.write(CHECKPOINT)]
    fleet = lambda: store.list_fleet("", None)  # noqa: E731 - one of them
    if kind is MEMBERS:
        return [store.members, lambda: store.put_member(ANNA), fleet]
    one: list[Way] = [
        lambda: store.read(R0),
        lambda: store.replace(NEW),
        lambda: store.delete(NEW),
    ]
    if column == kind.left_out:
        return one
    return [*one, store.list, lambda: store.changes_since(""), fleet]


async def reasons(kind: Kind[Any], store: Store, column: str) -> set[str]:
    """Return why a row is refused, which it must be in each way."""
    said = set()
    for way in ways_to_read(kind, store, column):
        with pytest.raises(ContainerRefused) as refused:
            await way()
        said.add(str(refused.value))
    return said


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def rows_of(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def columns(kind: Kind[Any]) -> list[str]:
    return [x for x in kind.columns if x != kind.key]


@pytest.mark.parametrize(
    ("kind", "column"),
    [pytest.param(k, x, id=f"{k.table}-{x}") for k in KINDS for x in columns(k)],
)
async def test_a_value_that_no_row_of_ours_has_is_refused_with_the_name_of_its_row(
    path: Path, kind: Kind[Any], column: str
) -> None:
    key = "anna" if kind is MEMBERS else "r0"
    form = kind.columns[column].split()[0]
    async with filled(kind, path) as store:
        for value in WRONG.get(column, WRONG[form]):
            change(path, f"update {kind.table} set {column} = {value}")
            for said in await reasons(kind, store, column):
                assert said.startswith(f"{path}: the row '{key}' of table {kind.table} ")
                assert column in said


@pytest.mark.parametrize("kind", KINDS, ids=lambda x: x.table)
async def test_so_is_nothing_where_there_must_be_something(path: Path, kind: Kind[Any]) -> None:
    async with filled(kind, path) as store:
        names = ", ".join(kind.columns)
        change(
            path,
            f"create table other (version integer primary key, {names})",
            f"insert into other select version, {names} from {kind.table}",
            f"drop table {kind.table}",
            f"alter table other rename to {kind.table}",
        )
        for column in columns(kind):
            before = rows_of(path, f"select {column} from {kind.table}")
            change(path, f"update {kind.table} set {column} = null")
            if "not null" in kind.columns[column]:
                for said in await reasons(kind, store, column):
                    assert column in said
                    assert "got `null`" in said
            else:
                await ways_to_read(kind, store, column)[0]()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(f"update {kind.table} set {column} = ?", before[0])


@pytest.mark.parametrize("key", ["x'ff'", "cast(x'ff' as text)", "x'7230'"])
@pytest.mark.parametrize("kind", [LEASES, OWNERSHIP, MEMBERS], ids=lambda x: x.table)
async def test_a_name_that_is_no_text_is_refused_as_it_is(
    path: Path, kind: Kind[Any], key: str
) -> None:
    shown = "b'r0'" if "7230" in key else r"b'\xff'"
    async with filled(kind, path) as store:
        assert not isinstance(store, SqliteCheckpoints)
        change(path, f"update {kind.table} set {kind.key} = {key}")
        with pytest.raises(ContainerRefused) as refused:
            await (store.members() if kind is MEMBERS else store.list())
        assert f"the row {shown} of table {kind.table} cannot be read" in str(refused.value)


async def test_what_sqlite_makes_of_values_that_a_person_wrote_is_read(path: Path) -> None:
    async with SqliteLeases(path) as leases:
        await leases.create(NEW)
        change(
            path,
            "update leases set stamp = 5, load = '0.5', epoch = '7', renewals = 3.0,"
            " ended = 1.0, failing_since = 1700000000, owner = 12, moved = '1'",
        )
        assert await leases.list() == [
            replace(
                NEW.without_continuation(),
                stamp=5.0,
                load=0.5,
                epoch=7,
                renewals=3,
                ended=True,
                moved=True,
                owner=HostName("12"),
                health=RangeHealth(failing_since=1.7e9),
                version=Version("1"),
            )
        ]


async def test_one_damaged_row_does_not_keep_others_from_being_written(path: Path) -> None:
    async with SqliteLeases(path) as leases:
        made = [await leases.create(x) for x in (NEW, OTHER)]
        change(path, "update leases set owner = cast(x'ff' as text) where range_id = 'r0'")
        refused, written = await asyncio.gather(
            *(leases.replace(x.renewed()) for x in made), return_exceptions=True
        )
        assert isinstance(refused, ContainerRefused)
        assert isinstance(written, Lease)
        assert (await leases.read(R1)) == written
        with pytest.raises(ContainerRefused, match="'r0' of table leases"):
            await leases.list()
        change(path, "update leases set owner = 'a\u00e4' where range_id = 'r0'")
        assert {x.owner for x in await leases.list()} == {None, "a\u00e4"}  # as text again


async def test_a_count_that_cannot_go_on_is_refused(path: Path) -> None:
    async with SqliteLeases(path) as leases:
        await leases.create(NEW)
        change(path, f"update leases set renewals = {2**63 - 1}")
        (lease,) = await leases.list()
        with pytest.raises(
            ContainerRefused, match="the row 'r0' of table leases cannot be cou"
        ):
            await leases.replace(lease.renewed())


@pytest.mark.parametrize("value", ["7", "x'ff'", "cast(x'ff' as text)"])
async def test_a_name_of_the_feed_that_is_no_text_is_refused(path: Path, value: str) -> None:
    async with SqliteLeases(path) as leases:
        await leases.keep_feed_identity("the feed")
        assert await leases.feed_identity() == "the feed"
    change(
        path,
        "drop table feed",
        "create table feed (identity)",
        f"insert into feed values ({value})",
    )
    async with SqliteLeases(path) as leases:
        with pytest.raises(ContainerRefused, match="table feed does not say which feed"):
            await leases.feed_identity()
