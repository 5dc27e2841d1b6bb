"""The fleet that users get: an observer of theirs, stories, and what can be waited for."""

import asyncio
from collections.abc import Sequence

import pytest

from changefeed import Change, Member, MemoryFeed, MemoryLeases, StoreRefused
from changefeed.feeds.feed import RangeId
from changefeed.fleet.reshape import merge, split
from changefeed.testing import Fleet, run_in_virtual_time
from tests.support import make


async def refuses_sevens(changes: Sequence[Change]) -> None:
    if any(x.key == "key-7" for x in changes):
        raise ValueError("seven")


async def test_an_era_is_caught_up_with_once_its_ranges_have_leases() -> None:
    async with Fleet(ranges=2) as fleet:
        fleet.start("anna")
        await fleet.balanced()
        assert isinstance(fleet.feed, MemoryFeed)
        fleet.append("key-1")
        fleet.feed.begin_era(3)
        fleet.append("key-1")
        await fleet.caught_up()
        assert sorted(await fleet.owners()) == ["r2", "r3", "r4"]
        assert [x.key for x in fleet.log.changes] == ["key-1", "key-1"]


async def test_ranges_that_an_operator_splits_and_merges_are_balanced_and_caught_up_with() -> (
    None
):
    async with Fleet(ranges=1) as fleet:
        fleet.start("anna")
        fleet.start("ben")
        await fleet.caught_up()
        leased = make.leased(fleet.feed, fleet.container)
        parts = [x.id for x in await split(leased, RangeId("r0"), 2)]
        for n in range(20):
            fleet.append(f"key-{n}")
        await fleet.balanced()
        assert await fleet.loads() == {"anna": 1, "ben": 1}
        await fleet.caught_up()
        assert sorted(await fleet.lags()) == sorted(parts)
        merged = await merge(leased, parts, patience=60)
        fleet.append("key-20")
        await fleet.balanced()
        await fleet.caught_up()
        assert [*await fleet.lags()] == [merged.id]
        assert (len(fleet.log.times), fleet.log.repeats) == (21, 0)


async def test_an_observer_of_the_users_fails_into_the_dead_letters() -> None:
    settings = {"observer": {"on_failure": "dead-letter", "retry": {"attempts": 2}}}
    async with Fleet(ranges=1, observer=refuses_sevens, settings=settings) as fleet:
        for n in range(10):
            fleet.append(f"key-{n}")
        fleet.start("anna")
        await fleet.caught_up()
        assert [x.key for x in await fleet.dead_letters()] == ["key-7"]
        assert {x.key for x in fleet.log.changes} == {f"key-{n}" for n in range(10) if n != 7}


async def test_waiting_ends_with_what_a_host_failed_of() -> None:
    class Refusing(MemoryLeases):
        async def members(self) -> Sequence[Member]:
            raise StoreRefused("not a lease container")

    async with Fleet(container=Refusing()) as fleet:
        fleet.start("anna")
        with pytest.raises(StoreRefused):
            await fleet.balanced()


def test_a_story_runs_without_any_plugin_and_takes_no_time() -> None:
    async def story() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(story()) == 3600
