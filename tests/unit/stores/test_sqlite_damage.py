"""Rows that were damaged or changed by hand are refused by name, and never guessed at."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.leases.fleet_record import join_fleet
from changefeed.leases.lease import Lease
from changefeed.leases.stored import StoredCheckpoints
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.addresses import open_store
from tests.support import make
from tests.support.sqlite_leases import SqliteLeases

R0, R1 = RangeId("r0"), RangeId("r1")
NEW, OTHER = make.lease("r0", at="c0"), make.lease("r1", at="c0")
ANNA = make.member("anna")

pytestmark = pytest.mark.real_time

NO_TEXT = ("x'ff'", "x'41'", "cast(x'ff' as text)", "7")
NO_JSON = ("''", "'{'", "'[]'", "'null'", "'{\"a\":' || replace(zeroblob(20000), x'00', '[')")
NO_LEASE = tuple(
    f"json_set(body, '$.{field}', json('{value}'))"
    for field, value in [
        *(("epoch", '"many"'), ("renewals", "1.5"), ("end", "2"), ("owner", "7")),
        *(("end", '{"children":[{}]}'), ("end", '{"children":[],"by":"chance"}')),
        *(("range.parents", "{}"), ("range.id", '"r7"'), ("health.stuck_since", '""')),
        *(("stamp", '"now"'), ("range", "null")),
    ]
)
"""What no row of ours can hold, as SQLite keeps it there."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@asynccontextmanager
async def open_checkpoints(path: Path) -> AsyncIterator[StoredCheckpoints]:
    async with open_store(f"sqlite:{path}") as store:
        yield StoredCheckpoints(store, where=str(path))


async def reasons(*ways: Callable[[], Awaitable[object]]) -> Sequence[str]:
    """Return why a row is refused, which it must be in each way."""
    said = []
    for way in ways:
        with pytest.raises(StoreRefused) as refused:
            await way()
        said.append(str(refused.value))
    return said


@pytest.mark.parametrize("body", [*NO_TEXT, *NO_JSON, *NO_LEASE])
async def test_a_lease_that_is_none_of_ours_is_refused_with_its_name(
    path: Path, body: str
) -> None:
    async with SqliteLeases(path) as leases:
        lease = await leases.create(NEW)
        change(path, f"update records set body = {body}")
        change(path, "update records set version = version + 1")
        for said in await reasons(
            lambda: leases.read(R0),
            leases.list,
            leases.list_fleet,
            lambda: leases.replace(lease),
        ):
            assert said.startswith(f"{path}: ")
            assert "'r0'" in said


@pytest.mark.parametrize("position", NO_TEXT[:3])
async def test_so_is_one_whose_position_is_no_text_where_that_is_read(
    path: Path, position: str
) -> None:
    async with SqliteLeases(path) as leases:
        await leases.create(NEW)
        change(path, f"update records set position = {position}")
        (said,) = await reasons(lambda: leases.read(R0))
        assert "'r0'" in said
        assert [x.range_id for x in await leases.list()] == [R0]
    async with open_checkpoints(path) as checkpoints:
        await checkpoints.create(make.checkpoint("r0"))
        change(path, f"update records set position = {position}")
        (said,) = await reasons(lambda: checkpoints.read(R0))
        assert "'r0'" in said


@pytest.mark.parametrize("body", [*NO_TEXT, *NO_JSON, "json_set(body, '$.heartbeats', 'x')"])
async def test_so_are_a_member_and_the_name_of_the_feed(path: Path, body: str) -> None:
    async with SqliteLeases(path) as leases:
        await leases.put_member(ANNA)
        await join_fleet(leases, "the feed")
        change(path, f"update records set body = {body} where kind = 'host'")
        for said in await reasons(leases.members, leases.list_fleet):
            assert "'anna'" in said
        if "heartbeats" not in body:
            change(path, f"update records set body = {body} where kind = 'fleet'")
            await reasons(leases.fleet)


async def test_one_damaged_row_does_not_keep_others_from_being_written(path: Path) -> None:
    async with SqliteLeases(path) as leases:
        made = [await leases.create(x) for x in (NEW, OTHER)]
        change(path, "update records set body = cast(x'ff' as text) where key = 'r0'")
        refused, written = await asyncio.gather(
            *(leases.replace(x.renewed()) for x in made), return_exceptions=True
        )
        assert isinstance(refused, StoreRefused)
        assert isinstance(written, Lease)
        assert (await leases.read(R1)) == written
        with pytest.raises(StoreRefused, match="'r0'"):
            await leases.list()
        change(path, "delete from records where key = 'r0'")
        assert await leases.read(R1) == written  # as text again
