"""An observer that keeps the position itself: it begins where it says at its opening."""

import asyncio
from collections.abc import Sequence

import pytest

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.reset import carry_out, planned
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.errors import ObserverRefused
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.fleet import Fleet, Sections
from tests.support.looking import until

R0 = RangeId("r0")


class Database:
    """What is kept in one transaction: what was done, and the checkpoint behind it."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.kept: str | None = None
        self.reset_in = 0
        self.fails_on: set[int] = set()
        self.crash_after: int | None = None
        self.crashed = asyncio.Event()


def keeping(database: Database) -> type:
    class Keeping:
        async def open(self, context: Context) -> str | None:
            database.reset_in = context.reset_in
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
    feed, database = MemoryFeed(1), Database()
    async with Fleet(feed, observer=keeping(database)) as fleet:
        for n in range(5):
            feed.append(f"k{n}")
        database.crash_after = 5
        fleet.start("a")
        await database.crashed.wait()
        await fleet.kill("a")
        fleet.start("b")
        await fleet.caught_up()
    assert database.done == [1, 2, 3, 4, 5]


async def test_an_older_copy_of_what_it_keeps_has_the_changes_since_delivered_again() -> None:
    feed, database = MemoryFeed(1), Database()
    async with Fleet(feed, observer=keeping(database)) as fleet:
        fleet.start("a")
        for n in range(4):
            feed.append(f"k{n}")
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
    feed, database = MemoryFeed(1), Database()
    database.fails_on = {2}
    async with Fleet(feed, observer=keeping(database)) as fleet:
        for n in range(5):
            feed.append(f"k{n}")
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
    feed, database = MemoryFeed(1), Database()
    database.fails_on = {3}
    settings: Sections = {"observer": {"on_failure": "dead-letter", "retry": {"attempts": 2}}}
    async with Fleet(feed, observer=keeping(database), settings=settings) as fleet:
        for n in range(3):
            feed.append(f"k{n}")
        fleet.start("a")
        await fleet.caught_up()
        await fleet.kill("a")
        database.fails_on.clear()
        fleet.start("b")
        await fleet.balanced()
        await asyncio.sleep(60)
        assert [x.sequence for x in await fleet.dead_letters()] == [3]
    assert database.done == [1, 2]


async def test_a_reset_by_a_person_is_told_with_the_epoch_that_it_has_begun() -> None:
    feed, leases, database = MemoryFeed(1), MemoryLeases(), Database()
    async with Fleet(feed, leases, observer=keeping(database)) as fleet:
        fleet.start("a")
        feed.append("k")
        await fleet.caught_up()
        await fleet.stop("a")
        assert database.reset_in == 0
        await carry_out(leases, await planned(feed, leases, R0, "beginning"))
        vacant = await leases.read(R0)
        fleet.start("a")
        await asyncio.sleep(30)
    assert vacant is not None
    assert database.reset_in == vacant.epoch


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
        with pytest.raises(ObserverRefused, match=r"observer\.concurrency"):
            await asyncio.wait_for(fleet.running["a"], 60)
