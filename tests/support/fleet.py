"""A fleet of real hosts in one process, over one feed and one container."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from changefeed.feeds.feed import Change, Feed, RangeId
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
from changefeed.observers.middleware.fence import ObserverMaker
from changefeed.observers.middleware.stack import wrap
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.clock import Clock, elapsed_time


class Log:
    """What the observers of a fleet saw, in the order of its happening."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, RangeId, int]] = []
        self.opened: list[tuple[str, RangeId]] = []
        self.closed: list[tuple[str, RangeId, CloseReason]] = []
        self.changes: list[Change] = []

    @property
    def times(self) -> Counter[tuple[RangeId, int]]:
        """How often each change was delivered."""
        return Counter((x, sequence) for _, x, sequence in self.delivered)


class LoggingObserver:
    """Writes to the log; ``pace`` is how many virtual seconds each change takes."""

    def __init__(self, log: Log, *, pace: float = 0.0) -> None:
        self._log = log
        self._pace = pace

    async def open(self, context: Context) -> None:
        self._log.opened.append((context.host, context.range.id))

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        if self._pace:
            await asyncio.sleep(self._pace * len(changes))
        self._log.delivered += [(context.host, x.range_id, x.sequence) for x in changes]
        self._log.changes += changes

    async def close(self, context: Context, reason: CloseReason) -> None:
        self._log.closed.append((context.host, context.range.id, reason))


Parts = Mapping[str, Mapping[str, object]]
"""Settings that differ from the defaults, by part."""


def settings(name: str, parts: Parts) -> Settings:
    """Settings of a host of the fleet: expiration 30, renewals 10, balancing 5 s."""
    return Settings.model_construct(
        host=HostSettings.model_validate({"name": name, **parts.get("host", {})}),
        feed=FeedSettings.model_validate(parts.get("feed", {})),
        leases=LeaseSettings.model_validate(parts.get("leases", {})),
        observer=ObserverSettings.model_validate(parts.get("observer", {})),
    )


class Fleet:
    """Starts, stops and kills hosts. Leaving the ``async with`` kills what is left.

    Observers write to ``log``, unless ``make_observer`` makes others.
    """

    def __init__(
        self,
        feed: Feed,
        container: LeaseContainer,
        *,
        pace: float = 0.0,
        seed: int = 0,
        parts: Parts | None = None,
        make_observer: ObserverMaker | None = None,
    ) -> None:
        self.feed = feed
        self.container = container
        self.log = Log()
        self.hosts: dict[str, Host] = {}
        self.running: dict[str, asyncio.Task[None]] = {}
        self._pace = pace
        self._random = Random(seed)
        self._make_observer = make_observer or wrap(
            lambda: LoggingObserver(self.log, pace=pace),
            ObserverSettings(),
            HostEvents(HostName("fleet")),
            self._random,
        )
        self._parts = parts or {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in [*self.running]:
            await self.kill(name)

    def start(
        self,
        name: str,
        *,
        container: LeaseContainer | None = None,
        clock: Clock = elapsed_time,
        clock_error: float = 0.0,
    ) -> Host:
        """Start a host; its wall clock is ahead of the others' by ``clock_error`` seconds."""
        host = Host(
            settings(name, self._parts),
            feed=self.feed,
            container=container or self.container,
            make_observer=self._make_observer,
            random=Random(self._random.random()),
            clock=clock,
            wall=partial(_wall, asyncio.get_running_loop(), clock_error),
        )
        self.hosts[name] = host
        self.running[name] = asyncio.create_task(host.run(), name=name)
        return host

    async def stop(self, name: str) -> None:
        """SIGTERM, and wait for the end."""
        self.hosts.pop(name).stop()
        await self.running.pop(name)

    async def kill(self, name: str) -> None:
        """SIGKILL, as far as a task can die of it: nothing is written any more."""
        host, task = self.hosts.pop(name), self.running.pop(name)
        _cut_off(host)
        await asyncio.sleep(0)  # a task that has not begun has nothing to be cut off from
        serving = host._serving
        while serving is not None and not serving.done():
            serving.cancel()
            await asyncio.wait([serving], timeout=0.5)
        with suppress(asyncio.CancelledError, Exception):
            await task

    async def owners(self) -> dict[RangeId, HostName | None]:
        return {x.range_id: x.owner for x in await self.container.list() if not x.ended}

    async def loads(self) -> dict[str, int]:
        """How many leases each running host owns, in the order of their names."""
        owned = Counter((await self.owners()).values())
        return {name: owned[HostName(name)] for name in sorted(self.hosts)}


class _Unplugged:
    """Stands where a killed host's container was: whoever calls it is told nothing more."""

    def __getattr__(self, name: str) -> object:
        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        return never


def _cut_off(host: Host) -> None:
    host._container._container = _Unplugged()  # type: ignore[assignment]


def _wall(loop: asyncio.AbstractEventLoop, error: float) -> float:
    """Wall-clock time that passes as the loop's does."""
    return 1_700_000_000.0 + error + loop.time()
