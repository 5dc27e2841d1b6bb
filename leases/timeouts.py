"""A lease container that always answers in time, or says that it did not.

It also shows whether the host can write leases at all. A host that lists them and cannot write
them keeps nothing that the plan gives it, and would look alive by its heartbeats for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TypeVar

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer, ListedFleet
from changefeed.leases.lease import FleetRecord, Lease, Member
from changefeed.runtime.cancellation import CancelledByClient, keep_cancellation
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.patience import Patience
from changefeed.stores.store import WHOLE

T = TypeVar("T")
_LONGEST_REST = 10  # expirations


class LeaseWrites:
    """What came of the writes of leases by one host. Times are in seconds, on ``clock``.

    ``when_failing`` is called once they fail, with the last error and the expiration.
    """

    def __init__(
        self,
        *,
        expiration: float,
        clock: Clock,
        when_failing: Callable[[StoreUnavailable, float], None] = lambda *_: None,
    ) -> None:
        self._expiration = expiration
        self._clock = clock
        self._when_failing = when_failing
        self._since: float | None = None
        self._last = -inf

    @property
    def failing(self) -> bool:
        """Whether there were only failures for an expiration.

        After some time without another failure, more after each try, it is worth a try again:
        the host may have had nothing to write meanwhile.
        """
        lasted = 0.0 if self._since is None else self._last - self._since
        longest = min(lasted, _LONGEST_REST * self._expiration)
        return lasted >= self._expiration and self._clock() - self._last < longest

    def succeeded(self) -> None:
        self._since = None

    def failed(self, error: StoreUnavailable) -> None:
        was_failing, self._last = self.failing, self._clock()
        if self._since is None:
            self._since = self._last
        if self.failing and not was_failing:
            self._when_failing(error, self._expiration)


class BoundedContainer:
    """Wraps a container: no call takes longer than ``timeout`` seconds.

    A call that ran out of time, or that its client gave up, raises ``StoreUnavailable``: a
    write may have happened. So does one that the server refuses, as long as there is
    ``patience`` for it. ``on_call`` gets the name of each call, for the metrics; ``writes``
    what came of each write of a lease.
    """

    def __init__(
        self,
        container: LeaseContainer,
        *,
        timeout: float,
        on_call: Callable[[str], None],
        patience: Patience | None = None,
        writes: LeaseWrites | None = None,
    ) -> None:
        self._container = container
        self._timeout = timeout
        self._on_call = on_call
        self._patience = patience or Patience(0)
        self._writes = writes or LeaseWrites(expiration=timeout, clock=elapsed_time)

    @property
    def renew_each(self) -> bool:
        return self._container.renew_each

    async def list(self) -> Sequence[Lease]:
        return await self._bounded("list", self._container.list())

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        return await self._bounded("list_fleet", self._container.list_fleet(token, heartbeat))

    async def read(self, range_id: RangeId) -> Lease | None:
        return await self._bounded("read", self._container.read(range_id))

    async def create(self, lease: Lease) -> Lease:
        return await self._bounded("create", self._container.create(lease))

    async def replace(self, lease: Lease) -> Lease:
        with self._writing(proves=lease.next_owner is None):
            return await self._bounded("replace", self._container.replace(lease))

    async def acquire(self, lease: Lease) -> Lease:
        with self._writing():
            return await self._bounded("acquire", self._container.acquire(lease))

    async def checkpoint(self, lease: Lease) -> Lease:
        with self._writing():
            return await self._bounded("checkpoint", self._container.checkpoint(lease))

    async def delete(self, lease: Lease) -> None:
        await self._bounded("delete", self._container.delete(lease))

    async def members(self) -> Sequence[Member]:
        return await self._bounded("members", self._container.members())

    async def put_member(self, member: Member) -> Member:
        return await self._bounded("put_member", self._container.put_member(member))

    async def remove_member(self, member: Member) -> None:
        await self._bounded("remove_member", self._container.remove_member(member))

    async def fleet(self) -> FleetRecord:
        return await self._bounded("fleet", self._container.fleet())

    async def put_fleet(self, record: FleetRecord) -> FleetRecord | None:
        return await self._bounded("put_fleet", self._container.put_fleet(record))

    @contextmanager
    def _writing(self, *, proves: bool = True) -> Iterator[None]:
        """Count what comes of it. A conflict says nothing about whether writes get through, and
        a request for a lease nothing about whether it could be read then.
        """
        try:
            yield
        except StoreUnavailable as error:
            self._writes.failed(error)
            raise
        if proves:
            self._writes.succeeded()

    async def _bounded(self, name: str, call: Awaitable[T]) -> T:
        self._on_call(name)
        try:
            with self._patience.asking(name, StoreUnavailable):
                async with asyncio.timeout(self._timeout):
                    return await keep_cancellation(call)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the lease container did not answer {name} within {self._timeout:g} s"
            ) from error
        except CancelledByClient as error:
            raise StoreUnavailable(
                f"the client of the lease container gave {name} up by itself"
            ) from error
