"""Looks at a fleet that take longer than those who ask for them wait."""

import asyncio

import pytest

from changefeed.cli.looks import Looks
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.settings import Settings
from changefeed.host.snapshot import FleetInspector, Snapshot
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import StoreUnavailable


class Slow(FleetInspector):
    """A look takes so long, and may fail."""

    def __init__(self, seconds: float) -> None:
        super().__init__(Settings(), MemoryLeases(), MemoryFeed(1), None)
        self.seconds = seconds
        self.fails = False
        self.looks = 0

    async def look(self) -> Snapshot:
        self.looks += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise StoreUnavailable("no answer")
        return await super().look()


def over(fleet: Slow) -> Looks:
    return Looks(fleet, asyncio.get_running_loop().time)


async def test_a_rare_scraper_gets_the_look_that_the_last_one_began() -> None:
    fleet = Slow(12)
    looks = over(fleet)
    with pytest.raises(StoreUnavailable, match="longer than 8 s; it goes on"):
        await looks.look(within=8)
    await asyncio.sleep(52)
    look = await looks.look(within=8)
    assert (look.age, fleet.looks) == (56, 2)
    await looks.stop()


async def test_a_look_goes_on_when_the_one_who_asked_is_gone() -> None:
    fleet = Slow(4)
    looks = over(fleet)
    asking = asyncio.create_task(looks.look(within=8))
    await asyncio.sleep(1)
    asking.cancel()
    await asyncio.sleep(3)
    look = await looks.look(within=8)
    assert (look.age, fleet.looks) == (0, 1)


async def test_all_who_ask_share_one_look_and_a_fresh_one_serves_them_again() -> None:
    fleet = Slow(1)
    looks = over(fleet)
    await asyncio.gather(*(looks.look(within=8) for _ in range(9)))
    await asyncio.sleep(4.9)
    assert (await looks.look(within=8)).age == pytest.approx(4.9)
    assert fleet.looks == 1
    await asyncio.sleep(0.1)
    assert (await looks.look(within=8)).age == 0
    assert fleet.looks == 2


async def test_a_look_that_fails_is_an_error_and_the_next_one_is_a_new_look() -> None:
    fleet = Slow(1)
    looks = over(fleet)
    await looks.look(within=8)
    await asyncio.sleep(60)
    fleet.fails = True
    with pytest.raises(StoreUnavailable, match="no answer"):
        await looks.look(within=8)
    fleet.fails = False
    assert (await looks.look(within=8)).age == 0


async def test_a_look_that_never_ends_is_given_up_and_an_old_one_is_shown_for_ten_minutes() -> (
    None
):
    fleet = Slow(1)
    looks = over(fleet)
    await looks.look(within=8)
    fleet.seconds = 10_000
    await asyncio.sleep(590)
    assert (await looks.look(within=8)).age == 598
    with pytest.raises(StoreUnavailable, match="longer than 8 s"):
        await looks.look(within=8)
    await asyncio.sleep(120)
    fleet.seconds = 1
    assert (await looks.look(within=8)).age == 0
