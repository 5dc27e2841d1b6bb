"""Clients of feeds and lease containers that cancel a call by themselves: no host minds."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from changefeed.feeds.memory import MemoryFeed
from changefeed.host.balancing.membership import Membership
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.cancellation import CancelledByClient
from changefeed.testing.fleet import Fleet
from tests.support.proxies import proxied


class Cancelling:
    """A third of all calls cancel themselves: before they did something, or after it."""

    def __init__(self) -> None:
        self._random = Random(7)
        self.over = False

    async def around(self, _name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        chance = 1.0 if self.over else self._random.random()
        if chance < 1 / 6:
            raise asyncio.CancelledError
        answer = await call()
        if chance < 1 / 3:
            raise asyncio.CancelledError
        return answer


async def test_a_fleet_goes_on_where_calls_cancel_themselves() -> None:
    memory, trouble = MemoryFeed(8), Cancelling()
    feed = proxied(memory, trouble.around)
    container = proxied(MemoryLeases(), trouble.around)
    async with Fleet(feed, container) as fleet:
        for name in "abc":
            fleet.start(name)
        for n in range(100):
            memory.append(f"key-{n}")
            await asyncio.sleep(5)
        trouble.over = True
        memory.append("the last")
        await asyncio.sleep(60)
        assert not any(x.done() for x in fleet.running.values())
        assert len(fleet.log.times) == 101
        assert set((await fleet.owners()).values()) == {"a", "b", "c"}


async def test_a_host_ends_where_a_task_of_its_own_was_cancelled_by_what_it_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cancelled(_: Membership) -> None:
        await asyncio.sleep(30)
        raise asyncio.CancelledError

    monkeypatch.setattr(Membership, "keep_alive", cancelled)
    container = MemoryLeases()
    async with Fleet(MemoryFeed(2), container) as fleet:
        fleet.start("a")
        with pytest.raises(CancelledByClient):
            await asyncio.wait_for(fleet.running["a"], 60)
        assert {x.owner for x in await container.list()} == {None}
