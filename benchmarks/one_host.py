"""One host in this process, from its joining to the last change of a feed, timed.

The feed is held shut until the host has every lease, so that only the reading is timed,
and no page was fetched before. A bare loop goes through the same gate.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from time import perf_counter

from changefeed.feeds.feed import Change, Feed, FeedRange, Page, Position, RangeId
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import (
    FeedSettings,
    HostSettings,
    LeaseSettings,
    ObserverSettings,
    Settings,
)
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import DeadLetters, Origin
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.range_observers import ObserverSetup
from tests.support.four_methods import FourMethods

Parts = Mapping[str, Mapping[str, object]]
"""Settings that differ from the defaults, by part."""


class HeldShut(FourMethods):
    """A feed that nothing can be read from before ``open`` is set."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed)
        self.open = asyncio.Event()

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        await self.open.wait()
        return await super().read(found, after, limit)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return await self._feed.lags(at)


class Until:
    """An observer that counts, waits for ``pause`` with each change, and tells the end."""

    def __init__(self, changes: int, pause: float = 0.0) -> None:
        self.all_here = asyncio.Event()
        self._left = changes
        self._pause = pause

    async def process(self, changes: Sequence[Change]) -> None:
        if self._pause:
            for _ in changes:
                await asyncio.sleep(self._pause)
        self._left -= len(changes)
        if self._left <= 0:
            self.all_here.set()


async def seconds_of_host(
    feed: Feed, container: LeaseContainer, parts: Parts, until: Until
) -> float:
    """Return how long one host takes to deliver everything; it stops in order after."""
    async with running_host(feed, container, parts, until) as began:
        await until.all_here.wait()
        return perf_counter() - began


@asynccontextmanager
async def running_host(
    feed: Feed,
    container: LeaseContainer,
    parts: Parts,
    until: Until,
    *,
    letters: DeadLetters | None = None,
) -> AsyncIterator[float]:
    """Yield when one host began to read, once it has all leases; it stops in order after."""
    shut = HeldShut(feed)
    settings = settings_of(parts)
    writer = None if letters is None else LetterWriter(letters, Origin(feed=feed.identity))
    host = Host(
        settings,
        feed=shut,
        container=container,
        observers=ObserverSetup(
            adapt(until.process),
            settings.observer,
            HostEvents(HostName("bench")),
            Random(1),
            letters=writer,
        ),
    )
    running = asyncio.create_task(host.run())
    ranges = len(await feed.ranges())
    while len(host.leases) < ranges:
        assert not running.done(), "the host has ended before it had its leases"
        await asyncio.sleep(0.02)
    began = perf_counter()
    shut.open.set()
    yield began
    host.stop()
    await running


async def seconds_of_loop(feed: Feed, changes: int) -> float:
    """Return how long a bare loop takes: one task for each range, reading page after page."""
    shut = HeldShut(feed)
    size = FeedSettings().page_size
    left, all_here = changes, asyncio.Event()

    async def read(found: FeedRange) -> None:
        nonlocal left
        after = await shut.start(found, "beginning")
        while (page := await shut.read(found, after, size)).changes:
            after = page.position
            left -= len([*page.changes])  # they are made when they are looked at
        if left <= 0:
            all_here.set()

    async with asyncio.TaskGroup() as group:
        for found in await feed.ranges():
            group.create_task(read(found))
        await asyncio.sleep(0.05)
        began = perf_counter()
        shut.open.set()
        await all_here.wait()
        return perf_counter() - began


def settings_of(parts: Parts) -> Settings:
    """Settings that no environment variable and no file of this machine changes."""
    return Settings.model_construct(
        host=HostSettings(name="bench"),
        feed=FeedSettings.model_validate(parts.get("feed", {})),
        leases=LeaseSettings.model_validate(parts.get("leases", {})),
        observer=ObserverSettings.model_validate(parts.get("observer", {})),
    )
