"""Rows and positions in one transaction, in PostgreSQL and in SQLite."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from changefeed.feeds.feed import Change, FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, Progress
from changefeed.observers.adapters import adapt
from changefeed.observers.observer import CloseReason, Observer
from changefeed.runtime.errors import Failure, UserError
from changefeed.testing.observers import RecordingContext
from changefeed.transactional import observer as transactional
from changefeed.transactional.postgres import in_postgres
from changefeed.transactional.sqlite import in_sqlite
from tests.support import make, servers

WHOLE = FeedRange(id=RangeId("r0"), low="0", high="8")
LEFT = FeedRange(id=RangeId("r0-0"), low="0", high="4", of=WHOLE.id, generation=(0, 1))
RIGHT = FeedRange(id=RangeId("r0-4"), low="4", high="8", of=WHOLE.id, generation=(0, 1))
JOINED = FeedRange(id=WHOLE.id, low="0", high="8", of=WHOLE.id, generation=(0, 2))


class Away(Exception):
    """The function has failed."""


@dataclass(kw_only=True)
class Place:
    """A database with a table of what is applied, which has no key: it shows all twice."""

    make: Callable[..., Any]
    query: Callable[[str], Any]
    fails_on: set[int] = field(default_factory=set)

    def observer(self, name: str = "orders", table: str = transactional.TABLE) -> Observer:
        return adapt(self.make(name, table))()

    async def applied(self) -> list[int]:
        return sorted([x for (x,) in await self.query("select sequence from applied")])

    def rows(self, changes: Sequence[Change]) -> list[tuple[int]]:
        if self.fails_on & {x.sequence for x in changes}:
            raise Away
        return [(x.sequence,) for x in changes]


def sqlite_place(directory: Path) -> Place:
    file = directory / "orders.db"

    def make(name: str, table: str) -> Any:
        def apply(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
            connection.executemany(
                "insert into applied values (?)", [(x.sequence,) for x in changes]
            )
            found.rows(changes)

        return in_sqlite(file, name=name, table=table)(apply)

    async def query(text: str) -> Any:
        with closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(text).fetchall()

    found = Place(make=make, query=query)
    return found


def postgres_place(url: str) -> Place:
    def make(name: str, table: str) -> Any:
        async def apply(connection: asyncpg.Connection, changes: Sequence[Change]) -> None:
            rows = [(x.sequence,) for x in changes]
            await connection.executemany("insert into applied values ($1)", rows)
            found.rows(changes)

        return in_postgres(url, name=name, table=table)(apply)

    async def query(text: str) -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetch(text)
        finally:
            await connection.close()

    found = Place(make=make, query=query)
    return found


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        found = sqlite_place(tmp_path)
    else:
        found = postgres_place(servers.postgres().url)
        await found.query("drop table if exists applied, changefeed_positions, others")
    await found.query("create table applied (sequence bigint)")
    return found


class Owner(RecordingContext):
    """One owner of a range: what a host is to its observer. ``lease`` is where that stands."""

    def __init__(
        self, observer: Observer, epoch: int, *, lease: int = 0, **context: Any
    ) -> None:
        super().__init__(epoch=epoch, **{"range": WHOLE, **context})
        self.observer = observer
        self.progress = Progress(
            Checkpoint(Position(str(lease))), lambda x: Position(str(x.sequence))
        )

    async def opened(self) -> "Owner":
        begins = await self.observer.open(self)
        assert begins is not None, "it keeps the position"
        checkpoint = Checkpoint.of_text(begins)
        self.progress.begin(checkpoint)
        self.after = int(checkpoint.position)
        return self

    async def give(self, *sequences: int) -> None:
        """Read what is behind the position of some changes, and hand over what is not done."""
        read = [make.change(n, key=f"k{n}") for n in sequences if n > self.after]
        await self.retry(self.progress.read(read, None))

    async def retry(self, changes: Sequence[Change] = ()) -> None:
        left = changes or self.progress.open
        if left:
            await self.observer.process(self, left)
            self.progress.done(left)

    def checkpoint_with(self, changes: Sequence[Change]) -> str:  # type: ignore[override]
        return self.progress.once_done(changes, {}).text

    def acknowledge(self, change: Change) -> None:
        self.progress.done([change])

    async def close(self) -> None:
        await self.observer.close(self, CloseReason.STOPPING)


@pytest.fixture
async def owner(place: Place) -> AsyncIterator[Callable[..., Any]]:
    """Make owners that are open, and close them at the end."""
    made: list[Owner] = []

    async def opened(epoch: int, **more: Any) -> Owner:
        named = {x: more.pop(x) for x in ("name", "table") if x in more}
        made.append(Owner(place.observer(**named), epoch, **more))
        return await made[-1].opened()

    yield opened
    for x in made:
        await x.close()


async def test_rows_and_position_come_together_or_not_at_all(place: Place, owner: Any) -> None:
    first = await owner(1)
    await first.give(1, 2)
    place.fails_on = {3}
    with pytest.raises(Away):
        await first.give(3)
    place.fails_on = set()
    second = await owner(2)
    await second.give(1, 2, 3)
    assert await place.applied() == [1, 2, 3]
    assert second.checkpoints == [3], "the lease follows"


async def test_a_former_owner_commits_nothing(place: Place, owner: Any) -> None:
    first = await owner(1)
    await first.give(1)
    second = await owner(2)
    with pytest.raises(Failure, match="epoch 2"):
        await first.give(2)
    await second.give(1, 2)
    with pytest.raises(Failure, match="epoch 2"):
        await owner(1)
    assert await place.applied() == [1, 2]


async def test_sub_ranges_begin_where_the_row_of_their_range_is_and_close_it(
    place: Place, owner: Any
) -> None:
    whole = await owner(5)
    await whole.give(1, 2)
    await whole.give(3)
    left = await owner(1, range=LEFT, lease=1)
    with pytest.raises(Failure, match="commits nothing"):
        await whole.give(4)
    await left.give(2, 3, 4)
    right = await owner(1, range=RIGHT, lease=1)
    await right.give(3, 5)
    assert await place.applied() == [1, 2, 3, 4, 5]
    with pytest.raises(Failure, match="r0-"):
        await owner(6)


async def test_ranges_that_are_merged_at_their_end_go_on_from_there(
    place: Place, owner: Any
) -> None:
    await (await owner(1, range=LEFT)).give(1, 4)
    await (await owner(1, range=RIGHT)).give(2)
    joined = await owner(7, range=JOINED, lease=4)
    await joined.give(5)
    assert await place.applied() == [1, 2, 4, 5]
    again = await owner(8, range=JOINED, lease=4)
    await again.give(5, 6)
    assert await place.applied() == [1, 2, 4, 5, 6]


async def test_what_one_of_merged_ranges_may_have_applied_is_refused(
    place: Place, owner: Any
) -> None:
    await (await owner(1, range=LEFT)).give(1, 4)
    await owner(1, range=RIGHT)
    joined = await owner(7, range=JOINED)
    with pytest.raises(Failure, match="up to sequence 4"):
        await joined.give(1)
    again = await owner(8, range=JOINED)
    with pytest.raises(Failure, match="up to sequence 4"):
        await again.give(1)
    assert await place.applied() == [1, 4]


async def test_a_reset_wins_over_the_row_until_its_range_was_opened(
    place: Place, owner: Any
) -> None:
    await (await owner(1)).give(1, 2)
    await (await owner(3, reset_epoch=2)).give(1)
    await (await owner(4, reset_epoch=2)).give(1, 2)
    assert await place.applied() == [1, 1, 2, 2]


@pytest.mark.parametrize("late", [False, True])
async def test_a_commit_whose_answer_is_lost_is_not_repeated(
    place: Place, owner: Any, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    first = await owner(1)
    await first.give(1)
    database = first.observer._object._database
    look, ended = type(first.observer._object)._look, asyncio.Event()
    commit = database.transaction

    class Lost:
        """Commits, and does not say so; where ``late``, as it was not when the row was read."""

        def __init__(self, alone: str = "") -> None:
            self.of = commit(alone)

        async def __aenter__(self) -> Any:
            return await self.of.__aenter__()

        async def __aexit__(self, *error: object) -> None:
            await self.of.__aexit__(*error)
            monkeypatch.setattr(database, "transaction", commit)
            raise ConnectionError

    async def before(self: Any, _: object, row: Any) -> str:
        monkeypatch.setattr(type(self), "_look", look)
        ended.set()
        return str(row.checkpoint)

    monkeypatch.setattr(database, "transaction", Lost)
    if late:
        monkeypatch.setattr(type(first.observer._object), "_look", before)
    with pytest.raises(ConnectionError):
        await first.give(2, 3)
    if late:
        with pytest.raises(Failure, match="came in"):
            await first.retry(first.progress.open[:1])
    await first.retry()
    await first.give(4)
    assert ended.is_set() is late
    assert await place.applied() == [1, 2, 3, 4]


async def test_what_is_put_aside_counts_for_the_next_owner(place: Place, owner: Any) -> None:
    first = await owner(1)
    await first.observer.put_aside(first, first.progress.read([make.change(1)], None)[0])
    await (await owner(2)).give(1, 2)
    assert await place.applied() == [2]


async def test_observers_of_other_names_or_tables_have_rows_of_their_own(
    place: Place, owner: Any
) -> None:
    for more in ({}, {"name": "bills"}, {"table": "others"}):
        await (await owner(1, **more)).give(1)
    assert await place.applied() == [1, 1, 1]


async def test_a_letter_is_replayed_in_a_transaction_without_a_position(place: Place) -> None:
    outside, observer = RecordingContext(), place.observer()
    assert await observer.open(outside) is None
    place.fails_on = {2}
    await observer.process(outside, [make.change(1)])
    with pytest.raises(Away):
        await observer.process(outside, [make.change(2)])
    await observer.close(outside, CloseReason.STOPPING)
    assert await place.applied() == [1]
    assert await place.query("select * from changefeed_positions") == []


async def test_many_ranges_that_open_at_once_make_one_table(place: Place, owner: Any) -> None:
    names = [FeedRange(id=RangeId(f"r{n}")) for n in range(8)]
    await asyncio.gather(*(owner(1, range=x) for x in names))
    rows = await place.query("select range_id from changefeed_positions")
    assert sorted(x for (x,) in rows) == [x.id for x in names]


class Order(msgspec.Struct):
    cents: int


async def test_changes_have_the_type_that_the_function_is_annotated_with(
    tmp_path: Path,
) -> None:
    given: list[int] = []

    def apply(_: sqlite3.Connection, changes: Sequence[Change[Order]]) -> None:
        given.extend(x.value().cents for x in changes)

    made = adapt(in_sqlite(tmp_path / "x.db", name="typed")(apply))()
    owner = await Owner(made, 1).opened()
    read = owner.progress.read([make.change(1, body=b'{"cents": 5}')], None)
    await owner.retry(read)
    await owner.close()
    assert given == [5]


def test_a_function_of_the_wrong_kind_and_a_bad_table_are_refused(tmp_path: Path) -> None:
    async def waits(_: object, changes: object) -> None:
        """Be async."""

    def plain(_: object, changes: object) -> None:
        """Be plain."""

    with pytest.raises(UserError, match="async def"):
        in_postgres("postgresql:", name="x")(plain)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="plain 'def'"):
        in_sqlite(tmp_path / "x.db", name="x")(waits)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="drop"):
        in_sqlite(tmp_path / "x.db", name="x", table="x; drop table y")(plain)
