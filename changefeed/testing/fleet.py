"""A fleet of real hosts in one process: start them, stop them, kill them, and look.

The hosts are those of ``changefeed run``, over a feed and a lease container in memory (or any
others). In virtual time a story of an hour takes milliseconds. What is killed writes nothing
any more, as after SIGKILL; the others notice when its leases expire.

Limits: one event loop and one wall clock for all hosts, and no processes. Plain observers run
in threads, which do not wait for virtual time: stories that depend on them belong on an
ordinary loop.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, NoReturn, Self

import msgspec

from changefeed.feeds.backlog import measure_backlog
from changefeed.feeds.feed import Change, Feed, RangeEnded, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.child_start import ChildStart
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
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import DeadLetter, Origin
from changefeed.observers.dead_letters.memory import MemoryDeadLetters
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.observer import CloseReason, Context, Observer, ObserverFactory
from changefeed.observers.range_observers import ObserverSetup
from changefeed.observers.registry import spelled
from changefeed.runtime.clock import Clock, elapsed_time

Sections = Mapping[str, Mapping[str, Any]]
"""Settings that differ from the defaults, by section: ``{"leases": {"expiration": 10}}``. In
``timing`` are intervals that no setting has: fields of ``changefeed.leases.timing.Timing``."""

_MAX_WAIT = 3600.0
_LOOK = 0.5


class FleetLog:
    """What the observers of a fleet saw, in the order of its happening."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, RangeId, int]] = []
        """Host, range and sequence of each change that an observer was done with."""
        self.opened: list[tuple[str, RangeId]] = []
        self.closed: list[tuple[str, RangeId, CloseReason]] = []
        self.changes: list[Change] = []
        """The same changes as in ``delivered``, whole."""

    @property
    def times(self) -> Counter[tuple[RangeId, int]]:
        """How often each change was delivered."""
        return Counter((x, sequence) for _, x, sequence in self.delivered)

    @property
    def repeats(self) -> int:
        """How many deliveries there were beyond the first of each change."""
        return len(self.delivered) - len(self.times)


class LoggingObserver:
    """Writes to the log; ``pace`` is how many seconds each change takes.

    Another observer may be called in between: it then decides how long that takes.
    """

    def __init__(
        self, log: FleetLog, *, pace: float = 0.0, inner: Observer | None = None
    ) -> None:
        self._log = log
        self._pace = pace
        self._inner = inner

    async def open(self, context: Context) -> str | None:
        self._log.opened.append((context.host, context.range.id))
        return None if self._inner is None else await self._inner.open(context)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        if self._pace:
            await asyncio.sleep(self._pace * len(changes))
        if self._inner is not None:
            await self._inner.process(context, changes)
        self._log.delivered += [(context.host, x.range_id, x.sequence) for x in changes]
        self._log.changes += changes

    async def put_aside(self, context: Context, change: Change) -> None:
        tell = getattr(self._inner, "put_aside", None)
        if tell is not None:
            await tell(context, change)

    async def close(self, context: Context, reason: CloseReason) -> None:
        self._log.closed.append((context.host, context.range.id, reason))
        if self._inner is not None:
            await self._inner.close(context, reason)


def fleet_settings(name: str, sections: Sections) -> Settings:
    """Settings of a host of the fleet: expiration 30, renewals 10, balancing 5 s."""
    leases = LeaseSettings.model_validate(sections.get("leases", {}))
    return Settings.model_construct(
        host=HostSettings.model_validate({"name": name, **sections.get("host", {})}),
        feed=FeedSettings.model_validate(sections.get("feed", {})),
        leases=leases.with_timing(**sections.get("timing", {})),
        observer=ObserverSettings.model_validate(sections.get("observer", {})),
    )


class Fleet:
    """Starts, stops and kills hosts. Leaving the ``async with`` kills what is left.

    ``feed`` and ``container`` are in memory unless given, the feed with ``ranges`` ranges.
    ``observer`` is a class or a function as for ``open_host``; without one, observers only
    record, and ``pace`` says how many seconds each change takes them. ``settings`` are those
    that differ from the defaults, by section. ``observers`` are other ones, which do
    not record.
    """

    def __init__(
        self,
        feed: Feed | None = None,
        container: LeaseContainer | None = None,
        *,
        ranges: int = 4,
        observer: Any = None,
        pace: float = 0.0,
        seed: int = 0,
        settings: Sections | None = None,
        observers: ObserverSetup | None = None,
    ) -> None:
        self.feed = MemoryFeed(ranges) if feed is None else feed
        self.container = MemoryLeases() if container is None else container
        self.log = FleetLog()
        self.hosts: dict[str, Host] = {}
        self.running: dict[str, asyncio.Task[None]] = {}
        self._pace = pace
        self._random = Random(seed)  # noqa: S311 - a story is to be repeatable
        self._sections = settings or {}
        self._letters = MemoryDeadLetters()
        self._own_setup = observers
        self._wrap = self._wrapping(observer)

    def use(self, observer: Any, *, settings: Sections | None = None) -> None:
        """Give the hosts that start from now on this observer, and these settings."""
        if settings is not None:
            self._sections = settings
        self._wrap = self._wrapping(observer)

    def _wrapping(self, observer: Any) -> Callable[[HostEvents], ObserverSetup]:
        """Return what makes the setup of a host's observers, which report to its events."""
        own = self._own_setup
        if own is not None:
            return lambda _: own
        wanted = ObserverSettings.model_validate(self._sections.get("observer", {}))
        inner: ObserverFactory | None = None
        if observer is not None:
            inner = adapt(observer, wanted.options)

        def make() -> Observer:
            made = None if inner is None else inner()
            return LoggingObserver(self.log, pace=self._pace, inner=made)

        origin = Origin(
            feed=self.feed.identity,
            observer=wanted.name or ("" if observer is None else spelled(observer)),
        )
        letters = LetterWriter(self._letters, origin)
        return lambda events: ObserverSetup(
            make,
            wanted,
            events,
            self._random,
            letters=letters if wanted.on_failure == "dead-letter" else None,
        )

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

    # What happens to the feed and to hosts.

    def append(self, key: str, value: Any = None) -> Change:
        """Append a change to a feed in memory; ``value`` is anything that JSON can say."""
        if not isinstance(self.feed, MemoryFeed):
            raise TypeError("this is for a MemoryFeed: append to your feed itself")
        return self.feed.append(key, b"" if value is None else msgspec.json.encode(value))

    def start(
        self,
        name: str,
        *,
        container: LeaseContainer | None = None,
        clock: Clock = elapsed_time,
        clock_error: float = 0.0,
        start: ChildStart | None = None,
    ) -> Host:
        """Start a host, also one that was stopped or killed before, under its old name.

        Its wall clock is ahead of the others' by ``clock_error`` seconds. ``start`` is what a
        supervisor says of it.
        """
        events = HostEvents(HostName(name))
        host = Host(
            fleet_settings(name, self._sections),
            feed=self.feed,
            container=container or self.container,
            observers=self._wrap(events),
            events=events,
            random=Random(self._random.random()),  # noqa: S311
            clock=clock,
            wall=partial(_wall, asyncio.get_running_loop(), clock_error),
            start=start,
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
        serving = host._serving  # noqa: SLF001 - to cancel ``run`` would be an orderly stop
        while serving is not None and not serving.done():
            serving.cancel()
            await asyncio.wait([serving], timeout=0.5)
        with suppress(asyncio.CancelledError, Exception):
            await task

    # What can be seen, and waited for.

    async def owners(self) -> dict[RangeId, HostName | None]:
        """Return who owns each range that has not ended."""
        return {x.range_id: x.owner for x in await self._open_leases()}

    async def loads(self) -> dict[str, int]:
        """How many leases each running host owns, in the order of their names."""
        owned = Counter((await self.owners()).values())
        return {name: owned[HostName(name)] for name in sorted(self.hosts)}

    async def lags(self) -> dict[RangeId, int]:
        """How many changes of each range lie behind its checkpoint."""
        found: dict[RangeId, int] = {}
        for listed in await self._open_leases():
            lease = await self.container.read(listed.range_id)
            if lease is not None and lease.position is not None:
                behind = await measure_backlog(self.feed, lease.range, lease.position)
                found[lease.range_id] = behind.changes
        return found

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """Return what was put aside, where ``observer.on_failure`` is ``dead-letter``."""
        found = [await self._letters.get(x.id) for x in await self._letters.list()]
        return [x for x in found if x is not None]

    async def balanced(self) -> None:
        """Wait until the running hosts own every range, evenly.

        Raise ``AssertionError`` with the owners if that has not come about after an hour.
        """

        async def even() -> bool:
            owners = await self.owners()
            loads = (await self.loads()).values()
            return (
                await self._known() == set(owners)
                and sum(loads) == len(owners)
                and max(loads, default=0) - min(loads, default=0) <= 1
            )

        await self._until(even, self.owners)

    async def caught_up(self) -> None:
        """Wait until every change was delivered, and checkpointed as done.

        Raise ``AssertionError`` with the lags if that has not come about after an hour.
        """

        async def nothing_behind() -> bool:
            lags = await self.lags()
            return (
                await self._known() == set(lags)
                and not any(lags.values())
                and not await self._is_over()
            )

        await self._until(nothing_behind, self.lags)

    async def _until(
        self, true: Callable[[], Any], shown: Callable[[], Any], longest: float = _MAX_WAIT
    ) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + longest
        while not await true():
            failed = [x for x in self.running.values() if x.done()]
            for task in failed:
                task.result()  # a host that failed is why
            if clock() > until:
                raise AssertionError(f"not within {longest:g} s: {await shown()}")
            await asyncio.sleep(_LOOK)

    async def _open_leases(self) -> list[Lease]:
        return [x for x in await self.container.list() if not x.ended]

    async def _known(self) -> set[RangeId]:
        """Return the ranges that are to be read, those which operators have made among them."""
        leases, ranges = await self.container.list(), await self.feed.ranges()
        root = (await self.container.fleet()).root
        if root is None and not leases:
            return {x.id for x in ranges}
        keymap = KeyMap(leases, root=root, ranges=ranges)
        coming = {x.child.range.id for x in keymap.new_leases}
        return coming | {x.range_id for x in keymap.leases.values() if not x.ended}

    async def _is_over(self) -> bool:
        """Whether a range was read to its end, and its lease does not say so yet."""
        for listed in await self._open_leases():
            lease = await self.container.read(listed.range_id)
            if lease is None or lease.position is None:
                return True
            try:
                await self.feed.read(lease.range, lease.position, 1)
            except RangeEnded:
                return True
        return False


def _cut_off(host: Host) -> None:
    """Let no call of a killed host reach its stores, and answer none."""
    bounds: Any = host._bounds  # noqa: SLF001 - what a process loses when it dies
    bounds.ask = _never


async def _never(_: str, call: Awaitable[Any], **__: object) -> NoReturn:
    if asyncio.iscoroutine(call):
        call.close()
    while True:
        await asyncio.Event().wait()


def _wall(loop: asyncio.AbstractEventLoop, error: float) -> float:
    """Wall-clock time that passes as the loop's does."""
    return 1_700_000_000.0 + error + loop.time()
