"""Looks at a fleet that take longer than those who ask for them wait."""

import asyncio

import pytest

from changefeed.fleet.status import FleetStatus
from changefeed.fleet.watch import StatusWatch
from changefeed.runtime.errors import StoreUnavailable
from tests.support import make
from tests.support.looking import now


class Slow:
    """A look takes so long, and may fail."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.fails = False
        self.looks = self.ended = 0
        self.before: list[FleetStatus | None] = []

    async def look(self, before: FleetStatus | None) -> FleetStatus:
        self.looks += 1
        self.before.append(before)
        await asyncio.sleep(self.seconds)
        self.ended += 1
        if self.fails:
            raise StoreUnavailable("no answer")
        return make.fleet_seen(seconds=now())


async def test_a_rare_scraper_gets_the_look_that_the_last_one_began() -> None:
    fleet = Slow(12)
    watch = StatusWatch(fleet.look)
    with pytest.raises(StoreUnavailable, match="longer than 8 s; it goes on"):
        await watch.look(within=8)
    await asyncio.sleep(52)
    await watch.look(within=8)
    assert (watch.age, fleet.looks) == (56, 2)
    await watch.stop()


async def test_a_look_goes_on_when_the_one_who_asked_is_gone() -> None:
    fleet = Slow(4)
    watch = StatusWatch(fleet.look)
    asking = asyncio.create_task(watch.look(within=8))
    await asyncio.sleep(1)
    asking.cancel()
    await asyncio.sleep(3)
    await watch.look(within=8)
    assert (watch.age, fleet.looks) == (0, 1)


async def test_a_look_that_never_ends_is_given_up_and_an_old_one_is_shown_for_ten_minutes() -> (
    None
):
    fleet = Slow(1)
    watch = StatusWatch(fleet.look)
    await watch.look(within=8)
    fleet.seconds = 10_000
    await asyncio.sleep(590)
    await watch.look(within=8)
    assert watch.age == 598
    with pytest.raises(StoreUnavailable, match="longer than 8 s"):
        await watch.look(within=8)
    await asyncio.sleep(120)
    fleet.seconds = 1
    await watch.look(within=8)
    assert watch.age == 0
