"""An observer that keeps the position itself: it begins where it says at its opening."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.reset import carry_out, planned
from changefeed.fleet.reshape import split
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.errors import UserError
from changefeed.testing.fleet import Fleet, Sections
from changefeed.transactional.rows import Row, opened
from tests.support import make
from tests.support.looking import lease_in, until

R0 = RangeId("r0")


class Database:
    """What is kept in one transaction: what was done, and the checkpoint behind it."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.kept: str | None = None
        self.reset_epoch = 0
        self.fails_on: set[int] = set()
        self.crash_after: int | None = None
        self.crashed = asyncio.Event()


def keeping(database: Database) -> type:
    class Keeping:
        async def open(self, context: Context) -> str | None:
            database.reset_epoch = context.reset_epoch
            return database.kept

        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            if database.fails_on & {x.sequence for x in changes}:
                raise ValueError("not this one")
            database.kept = context.checkpoint_with(changes)
            database.done += [x.sequence for x in changes]
            if changes[-1].sequence == database.crash_after:  # before any checkpoint
                database.crash_after = None
                database.crashed.set()
                await asyncio.Event().wait()

        async def put_aside(self, context: Context, change: Change) -> None:
            database.kept = context.checkpoint_with([change])

        async def close(self, context: Context, reason: CloseReason) -> None:
            """Have nothing to close."""

    return Keeping


async def test_what_an_observer_has_kept_wins_over_a_checkpoint_that_a_crash_left_behind() -> (
    None
):
    feed, database = make.memory_feed(1, 5), Database()
    async with Fleet(feed, observer=keeping(database)) as fleet:
        database.crash_after = 5
        fleet.start("a")
        await database.crashed.wait()
        await fleet.kill("a")
        fleet.start("b")
        await fleet.caught_up()
    assert database.done == [1, 2, 3, 4, 5]


async def test_an_older_copy_of_what_it_keeps_has_the_changes_since_delivered_again() -> None:
    feed, database = make.memory_feed(1, 4), Database()
    async with Fleet(feed, observer=keeping(database)) as fleet:
        fleet.start("a")
        await fleet.caught_up()
        await fleet.stop("a")
        database.kept = "2"  # restored from a backup
        fleet.start("a")
        await asyncio.sleep(60)
    assert database.done == [1, 2, 3, 4, 3, 4]


async def test_the_checkpoint_of_the_lease_follows_what_an_observer_has_kept() -> None:
    feed, leases, database = MemoryFeed(1), MemoryLeases(), Database()
    feed.append("k")
    feed.append("k")
    database.kept = "2"
    async with Fleet(feed, leases, observer=keeping(database)) as fleet:
        fleet.start("a")
        await asyncio.sleep(60)
        stored = await leases.read(R0)
    assert stored is not None
    assert stored.position == "2"
    assert database.done == []


async def test_keys_that_wait_are_kept_as_well() -> None:
    feed, database = make.memory_feed(1, 5), Database()
    database.fails_on = {2}
    async with Fleet(feed, observer=keeping(database)) as fleet:
        fleet.start("a")
        await asyncio.sleep(30)
        database.crash_after = feed.append("last").sequence
        await database.crashed.wait()
        await fleet.kill("a")
        database.fails_on.clear()
        fleet.start("b")
        await fleet.caught_up()
    assert sorted(database.done) == [1, 2, 3, 4, 5, 6]


async def test_what_was_put_aside_is_told_before_it_counts_as_done() -> None:
    feed, database = make.memory_feed(1, 3), Database()
    database.fails_on = {3}
    settings: Sections = {"observer": {"on_failure": "dead-letter", "retry": {"attempts": 2}}}
    async with Fleet(feed, observer=keeping(database), settings=settings) as fleet:
        fleet.start("a")
        await fleet.caught_up()
        await fleet.kill("a")
        database.fails_on.clear()
        fleet.start("b")
        await fleet.balanced()
        await asyncio.sleep(60)
        assert [x.sequence for x in await fleet.dead_letters()] == [3]
    assert database.done == [1, 2]


class Table:
    """Rows of positions, as ``changefeed.transactional`` keeps them, and what is applied."""

    def __init__(self) -> None:
        self.rows: dict[RangeId, Row] = {}
        self.applied: list[int] = []
        self.fails_on: set[str] = set()
        self.lost = asyncio.Event()
        self.answers = True


def applying(table: Table) -> type:
    class Applying:
        async def open(self, context: Context) -> str | None:
            at = context.checkpoint_with(()) or ""
            mine = Row(range=context.range, epoch=context.epoch, checkpoint=at)
            row, ended = opened(mine, [*table.rows.values()], reset_epoch=context.reset_epoch)
            table.rows |= {x.range.id: replace(x, epoch=0) for x in ended}
            table.rows[context.range.id] = row
            return row.checkpoint

        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            if table.fails_on & {x.key for x in changes}:
                raise ValueError("not this one")
            to = context.checkpoint_with(changes) or ""
            row = table.rows[context.range.id]
            table.rows[context.range.id] = row.moved(to, changes)
            table.applied += [x.sequence for x in changes]
            if not table.answers:
                table.lost.set()
                await asyncio.Event().wait()

    return Applying


async def test_parts_begin_where_the_row_of_their_range_is_with_the_keys_that_wait() -> None:
    feed, table = make.memory_feed(1, 100), Table()
    table.fails_on = {"key-5", "key-30"}
    async with Fleet(feed, observer=applying(table)) as fleet:
        fleet.start("a")
        await asyncio.sleep(20)
        table.answers = False
        feed.append("key-7")
        await table.lost.wait()
        await fleet.kill("a")
        before = (await lease_in(fleet.container)).checkpoint
        assert before is not None
        assert (before.high, len(before.holes)) == (100, 2)
        table.answers = True
        parts = await split(make.leased(feed, fleet.container), R0, 2)
        fleet.start("b")
        await asyncio.sleep(60)
        assert {x.id for x in parts} < {*table.rows}
        assert len(table.applied) == 97
        table.fails_on.clear()
        await fleet.caught_up()
    assert sorted(table.applied) == list(range(1, 102))


async def test_a_key_that_waits_goes_on_waiting_though_its_observer_is_opened_anew() -> None:
    feed, table = make.memory_feed(1, 20), Table()
    table.fails_on = {"key-5"}
    async with Fleet(feed, observer=applying(table)) as fleet:
        fleet.start("a")
        await asyncio.sleep(190)
        assert len(table.applied) == 19
        oldest = (await lease_in(fleet.container)).health.oldest
        assert oldest is not None
        assert oldest.tries == 11
        assert [x for _, x in fleet.log.opened] == [R0] * 2


async def test_a_reset_by_a_person_is_told_with_the_epoch_that_it_has_begun() -> None:
    feed, leases, database = MemoryFeed(1), MemoryLeases(), Database()
    async with Fleet(feed, leases, observer=keeping(database)) as fleet:
        fleet.start("a")
        feed.append("k")
        await fleet.caught_up()
        await fleet.stop("a")
        assert database.reset_epoch == 0
        await carry_out(leases, await planned(feed, leases, R0, "beginning"))
        vacant = await leases.read(R0)
        fleet.start("a")
        await asyncio.sleep(30)
    assert vacant is not None
    assert database.reset_epoch == vacant.epoch


@pytest.mark.real_time
async def test_a_plain_observer_asks_for_the_checkpoint_from_its_thread() -> None:
    feed, texts = MemoryFeed(1), list[str | None]()

    def plain(context: Context, changes: Sequence[Change]) -> None:
        texts.append(context.checkpoint_with(changes))

    feed.append("k")
    async with Fleet(feed, observer=plain) as fleet:
        fleet.start("a")
        await until(lambda: texts, within=30)
    assert texts == ["1"]


async def test_several_observers_of_a_range_cannot_keep_its_position() -> None:
    settings: Sections = {"observer": {"concurrency": 2}}
    database = Database()
    database.kept = "0"
    async with Fleet(MemoryFeed(1), observer=keeping(database), settings=settings) as fleet:
        fleet.start("a")
        with pytest.raises(UserError, match=r"observer\.concurrency"):
            await asyncio.wait_for(fleet.running["a"], 60)
