"""The workers of one host, when it stops and when one of them cannot go on."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.settings import ObserverSettings
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Observer
from changefeed.observers.range_observers import ObserverSetup
from changefeed.runtime.errors import Failure
from changefeed.testing.fleet import Fleet
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.calls import Calls
from tests.support.looking import now


async def test_a_lease_that_is_acquired_while_the_host_stops_is_released_at_once() -> None:
    feed, container = make.memory_feed(2, 100), MemoryLeases()
    slow_to_acquire = Calls(answered_after={"acquire": 5})
    async with Fleet(feed, container, pace=1.0) as fleet:
        fleet.start("a", container=proxied(container, slow_to_acquire))
        await asyncio.sleep(1)
        await fleet.stop("a")
        assert now() < 6
        assert set((await fleet.owners()).values()) == {None}
        assert {reason for _, _, reason in fleet.log.closed} <= {CloseReason.STOPPING}
        assert fleet.log.delivered == []


async def test_what_asking_again_cannot_mend_stops_the_host_and_is_raised() -> None:
    feed, container = MemoryFeed(3), MemoryLeases()

    async def damaged(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name in {"read", "news"} and now() > 10:
            await asyncio.sleep(0.1)
            raise FeedRefused("the log is damaged")
        return await call()

    async with Fleet(proxied(feed, damaged), container) as fleet:
        fleet.start("a")
        with pytest.raises(FeedRefused, match="the log is damaged"):
            await asyncio.wait_for(fleet.running["a"], 60)
        assert now() < 15
        assert set((await fleet.owners()).values()) == {None}
        assert len(fleet.log.closed) == 3


async def test_a_worker_that_is_cancelled_though_nobody_asked_for_it_stops_the_host() -> None:
    calls = iter(range(10))

    def cancels() -> Observer:
        next(calls)  # at most so often: without a rest in between, no time would pass
        raise asyncio.CancelledError

    container = MemoryLeases()
    make = ObserverSetup(cancels, ObserverSettings(), HostEvents(HostName("fleet")), Random(1))
    async with Fleet(MemoryFeed(2), container, observers=make) as fleet:
        fleet.start("a")
        with pytest.raises(Failure, match="was cancelled without a request to stop"):
            await asyncio.wait_for(fleet.running["a"], 60)
        assert set((await fleet.owners()).values()) == {None}
