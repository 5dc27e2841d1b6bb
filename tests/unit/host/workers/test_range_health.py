"""What a host knows of the ranges whose observers fail."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.endpoints import leases_of
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import ObserverSettings
from changefeed.host.workers.range_health import RangeHealths
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.middleware.stack import wrap
from tests.support.fleet import settings

R0 = RangeId("r0")


def test_failures_count_from_the_first_until_a_batch_is_done() -> None:
    now = 100.0
    health = RangeHealths(lambda: now)
    health.failed(R0, "first")
    now = 200.0
    health.failed(R0, "second")
    seen = health.ranges[R0]
    assert (seen.failing_since, seen.last_error, seen.last_progress) == (100, "second", None)
    health.progressed(R0)
    seen = health.ranges[R0]
    assert (seen.failing_since, seen.last_error, seen.last_progress) == (None, None, 200)


async def test_an_observer_that_fails_shows_at_the_endpoints_until_it_gets_on() -> None:
    feed, broken = MemoryFeed(1), [True]
    feed.append("k")

    async def process(_changes: Sequence[Change]) -> None:
        if broken[0]:
            raise ValueError("no such table")

    events = HostEvents(HostName("a"))
    make = wrap(adapt(process), ObserverSettings(), events, Random(1))
    host = Host(
        settings("a", {}),
        feed=feed,
        container=MemoryLeases(),
        make_observer=make,
        events=events,
    )
    running = asyncio.create_task(host.run())
    await asyncio.sleep(30)
    shown: Any = leases_of(host)["leases"]
    (lease,) = shown
    assert lease["last_error"] == "ValueError: no such table"
    assert lease["failing_since"] is not None
    broken[0] = False
    await asyncio.sleep(120)
    assert host.range_health[R0].failing_since is None
    assert host.range_health[R0].last_progress is not None
    host.stop()
    await running
    assert host.range_health == {}


async def test_times_of_health_are_by_the_clock_of_the_host() -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    feed.append("k")

    async def process(_changes: Sequence[Change]) -> None:
        pass

    make = wrap(adapt(process), ObserverSettings(), HostEvents(HostName("a")), Random(1))
    host = Host(
        settings("a", {}),
        feed=feed,
        container=leases,
        make_observer=make,
        wall=lambda: 1234.0,
    )
    running = asyncio.create_task(host.run())
    await asyncio.sleep(30)
    assert host.range_health[R0].last_progress == 1234.0
    host.stop()
    await running
