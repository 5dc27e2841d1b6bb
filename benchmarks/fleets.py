"""A fleet in memory and in virtual time, and a count of what its hosts ask of the leases."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar, cast

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import Failure, StoreUnavailable
from changefeed.stores.store import CallLimits
from changefeed.testing.fleet import Fleet, Sections
from changefeed.testing.virtual_time import VirtualTimeLoop

T = TypeVar("T")


class Watched:
    """The container as one host uses it: its calls are counted."""

    def __init__(self, inner: LeaseContainer, me: str) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()
        self.asked_at: list[int] = []
        """For each lease that was asked for: at which look, counted from 1."""
        self.conflicts = 0
        """Writes and claims that were lost to another host."""
        self.failures = 0
        """Writes and claims that got no answer."""
        self._me = HostName(me)

    @property
    def renew_each(self) -> bool:
        return self._inner.renew_each  # known without a call

    async def replace(self, lease: Lease) -> Lease:
        self._count("replace")
        if lease.next_owner == self._me != lease.owner:
            self.asked_at.append(self.calls["list"])
        with self._counted():
            return await self._inner.replace(lease)

    async def acquire(self, lease: Lease) -> Lease:
        self._count("acquire")
        with self._counted():
            return await self._inner.acquire(lease)

    def bounded(self, _: CallLimits) -> "Watched":
        return self  # nothing stalls in memory

    def __getattr__(self, name: str) -> Any:
        self._count(name)
        return getattr(self._inner, name)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except LeaseConflict:
            self.conflicts += 1
            raise
        except StoreUnavailable:
            self.failures += 1
            raise

    def _count(self, call: str) -> None:
        self.calls[call] += 1


class WatchedFleet(Fleet):
    """Hosts with the default settings over so many empty ranges."""

    def __init__(
        self,
        leases: int,
        container: LeaseContainer | None = None,
        settings: Sections | None = None,
    ) -> None:
        super().__init__(MemoryFeed(leases), container or MemoryLeases(), settings=settings)
        self.watched: dict[str, Watched] = {}

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all at once, so that the end is as quiet as the rest."""
        await self.stop_all()

    async def stop_all(self) -> None:
        """Stop every host."""
        for host in self.hosts.values():
            host.stop()
        ends = await asyncio.gather(*self.running.values(), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and type(end) is not Failure:
                raise end

    async def left_to_expire(self) -> int:
        """Return how many leases have the name of a host that has stopped."""
        return sum(x is not None for x in (await self.owners()).values())

    @property
    def acquisitions(self) -> int:
        return sum(x.calls["acquire"] for x in self.watched.values())

    def start_watched(self, *names: str) -> None:
        for name in names:
            self.start_with(name, self.container)

    def start_with(self, name: str, container: LeaseContainer) -> None:
        """Start a host that reaches the leases by a client of its own."""
        self.watched[name] = Watched(container, name)
        self.start(name, container=cast("LeaseContainer", self.watched[name]))

    async def until_even(self, leases: int) -> None:
        """Wait until so many leases are worked on, and no two hosts differ by more than one."""
        while True:
            loads = [len(x.leases) for x in self.hosts.values()]
            if sum(loads) == leases and max(loads) - min(loads) <= 1:
                return
            await asyncio.sleep(0.1)


def in_virtual_time(story: Callable[[], Awaitable[T]]) -> T:
    async def told() -> T:
        return await story()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(told())
