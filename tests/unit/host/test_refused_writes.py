"""Stories of a host that may read what is stored, and cannot write leases."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.runtime.errors import StoreUnavailable
from changefeed.testing.fleet import Fleet, Sections
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership
from tests.support.looking import start

NOTICED = 75.0
"""An expiration of failures, one without heartbeats, and some listings."""


class Refusing:
    """Goes around the calls of a ``proxied`` container. While ``out``, it refuses to write
    leases, and checkpoints that are kept apart, and ``more`` calls.
    """

    def __init__(self, *more: str) -> None:
        self.out = True
        self._refused = {"acquire", "replace", "checkpoint", "write", *more}

    async def __call__(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if self.out and name in self._refused:
            raise StoreUnavailable("503: not writable here")
        return await call()


async def test_the_others_read_what_a_host_would_that_may_not_write_checkpoints() -> None:
    feed, ownership, checkpoints = (
        make.memory_feed(4, 40),
        MemoryOwnership(),
        MemoryCheckpoints(),
    )
    refusing = Refusing()
    async with Fleet(feed, TwoStoreLeases(ownership, checkpoints)) as fleet:
        start(fleet, "a")
        fleet.start("b", container=TwoStoreLeases(ownership, proxied(checkpoints, refusing)))
        await asyncio.sleep(NOTICED)
        assert await fleet.loads() == {"a": 4, "b": 0}
        assert len(fleet.log.delivered) == 40
        read_by_a = 0
        for _ in range(100):
            await asyncio.sleep(10)
            read_by_a += (await fleet.loads())["a"] == 4
        assert read_by_a > 75  # b tries again now and then, and less and less often
        refusing.out = False
        await asyncio.sleep(400)
        assert await fleet.loads() == {"a": 2, "b": 2}


async def test_the_heir_of_a_host_that_cannot_write_any_more_repeats_little() -> None:
    """What it delivered after its writes had failed twice would never be checkpointed."""
    feed, container = make.memory_feed(1, 600), MemoryLeases()
    refusing = Refusing("put_member", "list_fleet")
    refusing.out = False
    parts: Sections = {"feed": {"page_size": 10}}
    async with Fleet(feed, container, pace=0.1, settings=parts) as fleet:
        fleet.start("a", container=proxied(container, refusing))
        await asyncio.sleep(15)
        refusing.out = True
        await asyncio.sleep(5)
        start(fleet, "b")
        await fleet.caught_up()
        assert await fleet.loads() == {"a": 0, "b": 1}
        assert fleet.log.repeats <= 30
        assert len(fleet.log.times) == 600
