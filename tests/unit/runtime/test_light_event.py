"""Events that are small: as those of asyncio, for what they are used for."""

import asyncio

import pytest

from changefeed.runtime.light_event import LightEvent


async def test_an_event_wakes_every_task_that_waits_though_it_is_cleared_at_once() -> None:
    event = LightEvent()
    waiting = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    event.set()
    event.clear()
    async with asyncio.timeout(1):
        await asyncio.gather(*waiting)
    assert not event.is_set()


async def test_a_waiter_that_was_cancelled_is_in_the_way_of_no_other() -> None:
    event = LightEvent()
    first, second = (asyncio.create_task(event.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    event.set()
    async with asyncio.timeout(1):
        await second
    with pytest.raises(asyncio.CancelledError):
        await first
