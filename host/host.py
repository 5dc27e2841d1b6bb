"""The host: one process of the fleet, from joining to leaving.

It keeps its member record alive, looks at leases and members every balancing interval,
carries out its own line of the plan, and runs one worker for each lease it holds. To stop
it is to ask (``Stop.request``): workers finish what they have in hand, leases are
released, the member record is removed; what has not ended when the time is over is
cancelled. What asking again cannot mend (a feed made anew, a container of another kind,
our name taken by another process) stops it in the same way, and is then raised.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import uuid4

from feeds.errors import FeedUnavailable
from feeds.feed import Feed, FeedRange, RangeId
from leases.bounded import BoundedContainer
from leases.container import LeaseContainer
from leases.errors import (
    ContainerError,
    ContainerUnavailable,
    LeaseConflict,
    LeaseGone,
    MemberConflict,
)
from leases.expiry import Moment
from leases.lease import HostName, Incarnation, Lease, Member
from observers.observer import CloseReason

from .balancer import Balancer
from .held import acquire
from .journal import Journal
from .loop_lag import LoopLag
from .membership import Membership, NameTaken
from .patience import Patience
from .ranges import create_missing, forget_finished
from .settings import Settings
from .worker import ObserverMaker, Worker

_ACQUIRE_AT_ONCE = 16
_SHORTEST_WAIT = 0.05  # rounding must not make the last moment before an expiry a busy one
_CANCEL_PATIENCE = 1.0
_CANCELS = 4
_GOODBYE_TIMEOUT = 2.0


class Stop:
    """How a host is told to stop: once to wind down, twice to stop at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def request(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the readiness of a host is made of. Ages are in seconds."""

    joined: bool
    stopping: bool
    loop_blocked: bool
    last_look: float | None

    def problems(self, *, longest_without_look: float) -> list[str]:
        """Say what keeps the host from being ready, for people."""
        found = []
        if not self.joined:
            found.append("it has not joined the fleet yet")
        if self.stopping:
            found.append("it is stopping")
        if self.loop_blocked:
            found.append("user code blocks the event loop, which endangers renewals")
        if self.joined and (self.last_look is None or self.last_look > longest_without_look):
            found.append("the lease container does not answer")
        return found


class Host:
    """One host. ``address`` is where its web endpoints listen, told to the other members."""

    def __init__(
        self,
        settings: Settings,
        *,
        feed: Feed,
        container: LeaseContainer,
        make_observer: ObserverMaker,
        journal: Journal | None = None,
        address: str = "",
        random: Random | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = HostName(settings.host.name)
        self.incarnation = Incarnation(uuid4().hex)
        self._settings = settings
        self._feed = feed
        self._make_observer = make_observer
        self._journal = journal or Journal(self.name)
        self._random = random or Random()  # noqa: S311 - spreads timers, guards nothing
        self._wall = wall
        self._container = BoundedContainer(
            container,
            timeout=settings.leases.call_timeout,
            on_call=self._journal.container_call,
        )
        self._patience = Patience(self._journal, self._random)
        self._membership = Membership(
            self._container,
            Member(name=self.name, incarnation=self.incarnation, address=address),
            settings.leases,
            journal=self._journal,
            patience=self._patience,
            wall=wall,
        )
        self._balancer = Balancer(self.name, settings.leases)
        self._loop_lag = LoopLag(self._journal, limit=settings.leases.fence_margin)
        self._workers: dict[RangeId, Worker] = {}
        self._tasks: dict[asyncio.Task[None], Worker] = {}
        self._ranges: Sequence[FeedRange] = ()
        self._ranges_at = float("-inf")
        self._stop = Stop()
        self._joined = False
        self._looked_at: float | None = None
        self._failure: Exception | None = None

    @property
    def leases(self) -> Mapping[RangeId, Lease]:
        """The leases held, as last written."""
        return {name: worker.lease for name, worker in self._workers.items()}

    @property
    def lags(self) -> Mapping[RangeId, int]:
        return self._journal.lags

    @property
    def health(self) -> Health:
        now = asyncio.get_running_loop().time()
        return Health(
            joined=self._joined,
            stopping=self._stop.asked.is_set(),
            loop_blocked=self._loop_lag.endangers_renewal,
            last_look=None if self._looked_at is None else now - self._looked_at,
        )

    def stop(self) -> None:
        """Ask the host to wind down; asked again, to stop at once. Returns immediately."""
        self._stop.request()

    async def run(self) -> None:
        """Be a host until asked to stop.

        Raise ``NameTaken``, ``FeedRefused``, ``ContainerRefused`` and the like after an
        orderly stop, if one of them was the reason.
        """
        if not await self._join():
            return
        async with asyncio.TaskGroup() as group:
            companions = [
                group.create_task(self._watched(self._membership.beat_for_ever())),
                group.create_task(self._loop_lag.measure_for_ever()),
            ]
            balancing = group.create_task(self._watched(self._balance_until_asked(group)))
            await self._stop.asked.wait()
            await self._wind_down(balancing)
            for companion in companions:
                companion.cancel()
        await self._say_goodbye()
        if self._failure is not None:
            raise self._failure

    async def _join(self) -> bool:
        """Join the fleet; ``False`` if asked to stop before that worked out."""
        joining = asyncio.ensure_future(self._membership.join())
        asked = asyncio.ensure_future(self._stop.asked.wait())
        try:
            await asyncio.wait((joining, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            if not joining.done():
                joining.cancel()
        if joining.cancelled() or not joining.done():
            return False
        joining.result()
        self._joined = True
        return True

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        """Turn the failure of a part into an orderly stop of the whole."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - kept, told, and raised by run()
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = _only(error)
            self._journal.failed(self._failure)
        if not self._stop.asked.is_set():
            self._stop.request()

    # balancing

    async def _balance_until_asked(self, group: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        while not self._stop.asked.is_set():
            try:
                await self._look_and_act(group)
                self._looked_at = clock()
            except* (ContainerUnavailable, FeedUnavailable) as errors:
                self._journal.retrying(
                    "balance", _only(errors), self._settings.leases.balance_interval
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(self._time_to_next_look()):
                    await self._stop.asked.wait()

    def _time_to_next_look(self) -> float:
        """Wait an interval, or less if something would expire before."""
        wait = self._settings.leases.balance_interval * self._random.uniform(0.9, 1.1)
        expiry = self._balancer.next_expiry()
        if expiry is None:
            return wait
        return max(_SHORTEST_WAIT, min(wait, expiry - asyncio.get_running_loop().time()))

    async def _look_and_act(self, group: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        asked = clock()
        leases, members = await asyncio.gather(
            self._container.list(), self._container.members()
        )
        at = Moment(asked=asked, answered=clock(), wall=self._wall())
        if await self._tend_ranges(leases):
            leases = await self._container.list()
        fleet = self._balancer.fleet
        line = self._balancer.line(leases, members, at, held=self._workers)
        if self._balancer.fleet != fleet:
            self._journal.members_changed(self._balancer.fleet)
        few = asyncio.Semaphore(_ACQUIRE_AT_ONCE)

        async def take(lease: Lease, how: str) -> None:
            async with few:
                if not self._stop.asked.is_set():
                    await self._take(lease, how, group)

        async with asyncio.TaskGroup() as taking:
            for lease in line.acquire:
                taking.create_task(take(lease, _how(lease, self.name)))
            for lease in line.steal:
                taking.create_task(take(lease, "stolen"))
        await self._sweep(leases, members)

    async def _take(self, lease: Lease, how: str, group: asyncio.TaskGroup) -> None:
        try:
            held = await acquire(
                self._container,
                lease,
                taken=lambda x: x.taken_by(self.name, self.incarnation),
                settings=self._settings.leases,
                wall=self._wall,
            )
        except (LeaseConflict, LeaseGone):
            self._journal.conflict(lease, "acquire")
            return
        self._journal.acquired(held.lease, held.continuation, how, lease.owner)
        worker = Worker(
            held,
            host=self.name,
            feed=self._feed,
            container=self._container,
            make_observer=self._make_observer,
            settings=self._settings,
            journal=self._journal,
            random=self._random,
        )
        self._workers[held.range_id] = worker
        self._tasks[group.create_task(self._run(worker))] = worker
        if self._stop.asked.is_set():  # while the claim was under way
            worker.part(CloseReason.STOPPING)

    async def _run(self, worker: Worker) -> None:
        task = asyncio.current_task()
        assert task is not None, "a coroutine that runs has a task"
        try:
            await worker.run()
        except Exception as error:  # noqa: BLE001 - kept, told, and raised by run()
            self._fail(error)
        finally:
            del self._workers[worker.lease.range_id]
            del self._tasks[task]

    async def _tend_ranges(self, leases: Sequence[Lease]) -> bool:
        """Look for new ranges now and then; say whether leases were created."""
        now = asyncio.get_running_loop().time()
        if now - self._ranges_at < self._settings.feed.ranges_interval:
            return False
        self._ranges = await self._feed.ranges()
        created = await create_missing(
            self._feed,
            self._container,
            self._settings.feed.start_at,
            ranges=self._ranges,
            leases=leases,
            journal=self._journal,
        )
        self._ranges_at = now
        return created

    async def _sweep(self, leases: Sequence[Lease], members: Sequence[Member]) -> None:
        """Remove what is over: ended leases, and the records of hosts long dead."""
        await forget_finished(
            self._container, ranges=self._ranges, leases=leases, journal=self._journal
        )
        for member in self._balancer.to_forget(leases, members):
            with suppress(MemberConflict):
                await self._container.remove_member(member)

    # stopping

    async def _wind_down(self, balancing: asyncio.Task[None]) -> None:
        budget = self._settings.host.stop_timeout
        self._journal.stopping(budget)
        for worker in self._workers.values():
            worker.part(CloseReason.STOPPING)
        with suppress(TimeoutError):
            async with asyncio.timeout(budget):
                await self._until_all_have_parted(balancing)
        balancing.cancel()
        for attempt in range(_CANCELS):
            if not self._tasks:
                return
            for task, worker in self._tasks.items():
                if attempt:
                    worker.abandon()
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_CANCEL_PATIENCE)

    async def _until_all_have_parted(self, balancing: asyncio.Task[None]) -> None:
        at_once = asyncio.ensure_future(self._stop.at_once.wait())
        try:
            with suppress(ContainerError, MemberConflict, NameTaken):
                await self._membership.say_stopping()
            while not self._stop.at_once.is_set():
                pending = {x for x in (balancing, *self._tasks) if not x.done()}
                if not pending:
                    return
                await asyncio.wait({*pending, at_once}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            at_once.cancel()

    async def _say_goodbye(self) -> None:
        try:
            async with asyncio.timeout(_GOODBYE_TIMEOUT):
                await self._membership.leave()
        except (ContainerError, MemberConflict, TimeoutError) as error:
            self._journal.retrying("leave", error, 0.0)
        self._journal.stopped()


def _how(lease: Lease, me: HostName) -> str:
    if lease.owner is None:
        return "available"
    return "own" if lease.owner == me else "expired"


def _only(error: Exception) -> Exception:
    """Return the one error in a group of one, however deep."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
