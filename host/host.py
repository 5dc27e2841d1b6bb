"""The host, from joining its fleet to leaving it.

It keeps its member record alive, lists leases and members every balancing interval,
carries out its own actions of the plan, and runs one worker for each lease it owns. On
``stop`` workers finish what they have in hand, leases are released, and the member record
is removed; what has not ended when the time is over is cancelled. What a retry cannot
mend (a feed that was recreated, a container of another kind, our name taken by another
process) stops it in the same way, and is then raised. To cancel ``run`` is to ask for a
stop as well: the host is a guest in a program, and leaves in order.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from changefeed import __version__
from changefeed.feeds.feed import BoundedFeed, Feed, FeedRange, Position, RangeId
from changefeed.host.careful_delivery import CarefulDelivery
from changefeed.host.child_start import ChildStart
from changefeed.host.coordinator import Coordinator
from changefeed.host.discovery import Discovery
from changefeed.host.events import HostEvents
from changefeed.host.failures import Failures, Retrier
from changefeed.host.health import Health, LoopLag
from changefeed.host.lags import LagMeter
from changefeed.host.load_meter import SharedTime
from changefeed.host.membership import Membership
from changefeed.host.reader import IdleRanges
from changefeed.host.renewer import LeaseRenewer
from changefeed.host.settings import Settings
from changefeed.host.shared import Process, WorkerContext
from changefeed.host.worker import Worker, WorkerPool
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet_record import changed_to, join_fleet
from changefeed.leases.lease import FleetRecord, HostName, Incarnation, Lease, Member
from changefeed.leases.timing import FleetRules
from changefeed.observers.range_observers import ObserverSetup
from changefeed.observers.tracing import BatchTracing
from changefeed.runtime.calls import Patience
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import NameTaken, StoreError
from changefeed.runtime.stop import Stop
from changefeed.stores.store import CallLimits

_PATIENCE = 60.0  # seconds for which a refusal counts as no answer
_MAX_DELAY_AT_END = 1.0


class Host:
    """One host: ``run`` it, ``stop`` it, and look at it. Make it with ``open_host``.

    ``address`` is where its web endpoints listen, for people who look at the members.
    """

    name: HostName
    """Its own within the fleet, and the same after a restart."""
    settings: Settings
    rules: FleetRules
    """What it goes by of its fleet."""
    registry: CollectorRegistry | None
    """What Prometheus is to fetch of it; ``None`` if it counts with the program's meters."""
    feed: Feed
    container: LeaseContainer
    """Where the leases are; operators pause, resume, release and reset there."""
    wall: Callable[[], float]
    """Seconds since 1970, by its clock."""
    events: HostEvents
    """What it did lately, how its ranges get on, and what it last saw of its fleet."""

    def __init__(
        self,
        settings: Settings,
        *,
        feed: Feed,
        container: LeaseContainer,
        observers: ObserverSetup,
        tracing: BatchTracing | None = None,
        events: HostEvents | None = None,
        address: str = "",
        process: Process | None = None,
        start: ChildStart | None = None,
        registry: CollectorRegistry | None = None,
        random: Random | None = None,
        clock: Clock = elapsed_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = HostName(settings.host.name)
        start = start or ChildStart.of(self.name, {})
        self.incarnation = Incarnation(start.incarnation)
        self._ended = start.dead
        timing = settings.leases.timing
        self.rules = FleetRules(timing, settings.leases.balance, clock)
        self.settings = settings
        self.registry = registry
        self.feed = BoundedFeed(feed, patience=Patience(_PATIENCE))
        self.events = events or HostEvents(self.name, wall=wall)
        self.events.request_units = lambda: feed.request_units
        self._random = random or Random()  # noqa: S311 - spreads timers, guards nothing
        self._retrier = Retrier(self.events, self._random)
        self._clock = clock
        self.wall = wall
        self._bounds = CallLimits(
            timeout=timing.call_timeout,
            on_call=self.events.store_request,
            patience=Patience(_PATIENCE),
            expiration=timing.expiration,
            clock=clock,
            when_failing=partial(self.events.retrying, "write leases"),
        )
        self.container = container.bounded(self._bounds)
        self._membership = Membership(
            self.container,
            Member(
                name=self.name,
                incarnation=self.incarnation,
                address=address,
                software=__version__,
                max_ranges=settings.leases.max_ranges,
            ),
            self.rules,
            dead=start.dead.keys(),
            events=self.events,
            retrier=self._retrier,
            wall=wall,
            clock=clock,
            on_beat=self._beat,
            may_beat=lambda: not self._bounds.failing,
        )
        self._idle = IdleRanges(
            self.feed, settings.feed, retrier=self._retrier, random=self._random
        )
        self._shared = WorkerContext(
            host=self.name,
            feed=self.feed,
            observers=observers,
            tracing=tracing,
            settings=settings,
            rules=self.rules,
            idle=self._idle,
            events=self.events,
            retrier=self._retrier,
            care=CarefulDelivery(self._retrier, (process or Process()).turn),
            shared_time=SharedTime(asyncio.get_running_loop().time),
        )
        self._loop_lag = LoopLag(self.events, limit=timing.fence_margin)
        self._pool: WorkerPool | None = None
        self._renewer: LeaseRenewer | None = None
        self._coordinator: Coordinator | None = None
        self._list_now = asyncio.Event()
        self._discovery = self._make_discovery()
        self._stop = Stop()
        self._failures = Failures(
            self.events,
            failed=self._stop_after,
            stopping=self._stop.requested.is_set,
            suspect=f"observer {settings.observer.name or ''}".strip(),
        )
        self._serving: asyncio.Task[None] | None = None

    @property
    def leases(self) -> Mapping[RangeId, Lease]:
        """The leases this host owns, by range, as last written."""
        return {} if self._pool is None else self._pool.leases

    @property
    def in_hand(self) -> Mapping[RangeId, Position]:
        """The ranges whose observers have changes in hand, and the positions before these."""
        return {} if self._pool is None else self._pool.in_hand

    @property
    def ranges(self) -> Sequence[FeedRange]:
        """The ranges of the feed, as it last listed them."""
        return self._discovery.ranges.listed

    @property
    def health(self) -> Health:
        """What readiness is made of. To be asked on the event loop."""
        listed_at = None if self._coordinator is None else self._coordinator.listed_at
        return Health(
            joined=self._pool is not None,
            stopping=self._stop.requested.is_set(),
            loop_blocked=self._loop_lag.endangers_renewal,
            last_listing=None if listed_at is None else self._clock() - listed_at,
        )

    def stop(self) -> None:
        """Ask the host to stop in order; asked again, to stop at once. Returns immediately."""
        self._stop.request()
        self._list_now.set()

    async def run(self) -> None:
        """Be a host until asked to stop. Once only.

        Raise ``NameTaken``, ``FeedRefused``, ``StoreRefused`` and the like after an
        orderly stop, if one of them was the reason; ``Failure`` where work was cut
        off, or a lease was left with our name on it. Cancelled, the host stops in order,
        which takes ``host.stop_timeout`` at most, before ``CancelledError`` is raised;
        cancelled again, it stops at once; a third time, it drops everything.
        """
        assert self._serving is None, "a host runs once; open another"
        self._serving = asyncio.ensure_future(self._serve())
        cancelled: asyncio.CancelledError | None = None
        while not self._serving.done():
            try:
                await asyncio.wait((self._serving,))
            except asyncio.CancelledError as error:
                cancelled = error
                if self._stop.at_once.is_set():
                    self._serving.cancel()
                self.stop()
        if cancelled is not None and not self._serving.cancelled():
            self._serving.exception()  # it is in the log; to be cancelled goes before
            raise cancelled
        if self._serving.cancelled() and cancelled is None:
            raise self._failures.first or self._failures.unexpected_cancellation("the host")
        self._serving.result()

    async def ended(self) -> None:
        """Wait until ``run`` is over, if it was ever begun; what it raised is not raised."""
        if self._serving is not None:
            await asyncio.wait((self._serving,))

    async def _serve(self) -> None:
        try:
            if await self._join():
                await self._work()
        finally:
            await self._membership.leave()
            incomplete = None if self._pool is None else self._pool.incomplete
            self.events.stopped(incomplete)
        if self._failures.first is not None:
            raise self._failures.first
        if incomplete is not None:
            raise incomplete

    def _beat(self, sent: float) -> None:
        if self._pool is not None and not self.container.renew_each:
            self._pool.beat(sent)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            lags = LagMeter(
                self.feed,
                self.container,
                self.rules.shown,
                idle=self._idle,
                events=self.events,
                wall=self.wall,
            )
            renewer = self._renewer = self._make_renewer()
            pool = self._pool = WorkerPool(
                partial(Worker, shared=self._shared),
                group=group,
                guard=self._failures.guard,
                renewer=renewer,
                started=lags.acquired,
                ended=self._list_now.set,
            )
            coordinator = self._coordinator = self._make_coordinator(pool)
            guard = self._failures.guard
            companions = [
                group.create_task(guard(x))
                for x in (
                    self._membership.keep_alive(),
                    self._loop_lag.run(),
                    renewer.run(),
                    self._idle.run(),
                    lags.measure_own(pool),
                    lags.measure_unassigned(),
                    self._discovery.run(),
                )
            ]
            balancing = group.create_task(guard(self._balance_until_asked(coordinator)))
            await self._stop.requested.wait()
            await self._shut_down(pool, balancing)
            for companion in companions:
                companion.cancel()

    async def _join(self) -> bool:
        """Join the fleet; ``False`` if asked to stop before that worked out."""
        joining = asyncio.ensure_future(self._enter())
        asked = asyncio.ensure_future(self._stop.requested.wait())
        try:
            await asyncio.wait((joining, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            joined = joining.done()
            joining.cancel()
        if joined:
            joining.result()
        return joined

    def _make_renewer(self) -> LeaseRenewer:
        return LeaseRenewer(
            self.rules,
            renew_each=self.container.renew_each,
            events=self.events,
            retrier=self._retrier,
            random=self._random,
            failed=self._failures.record,
        )

    async def _enter(self) -> None:
        """Write down by what rules this host was started, and go by them; then be a member."""
        own = self.settings.leases
        change = partial(changed_to, expiration=own.expiration, balance=own.balance)
        record = await self._retrier.call(
            "join", partial(join_fleet, self.container, self.feed.identity, change)
        )
        self.rules.begin(record)
        await self._membership.join()

    async def _go_by(self, record: FleetRecord) -> None:
        """Adopt what the record of the fleet says by now."""
        if record.expiration and self.rules.adopt(record):
            self.events.rules_changed(record.expiration, record.balance)
        timing = self.rules.shown
        self._bounds.timeout, self._bounds.expiration = timing.call_timeout, timing.expiration
        if record.before and self.rules.settled:
            await self.container.put_fleet(replace(record, before=0.0))  # or another write

    def _make_discovery(self) -> Discovery:
        return Discovery(
            self.feed,
            self.container,
            self.settings.feed,
            events=self.events,
            changed=self._list_now.set,
            timing=self.rules.shown,
            recorded=self._go_by,
            clock=self._clock,
        )

    def _make_coordinator(self, pool: WorkerPool) -> Coordinator:
        return Coordinator(
            self.name,
            self.incarnation,
            self.settings,
            self.rules,
            container=self.container,
            pool=pool,
            discovery=self._discovery,
            events=self.events,
            random=self._random,
            clock=self._clock,
            wall=self.wall,
            stopping=self._stop.requested.is_set,
            list_fleet=self._membership.list_fleet,
            ended=self._ended,
        )

    async def _balance_until_asked(self, coordinator: Coordinator) -> None:
        await coordinator.run(self._list_now)
        # A claim without an answer may be ours: that its release is lost too is no rarity.
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(2 * self.rules.shown.call_timeout):
                await self._retrier.call(
                    "release", coordinator.release_unserved, longest_delay=_MAX_DELAY_AT_END
                )

    def _stop_after(self, failure: Exception) -> None:
        if isinstance(failure, NameTaken) and self._renewer is not None:
            self._renewer.doubt_all()  # the other process takes what carries our name
        if not self._stop.requested.is_set():
            self.stop()

    async def _shut_down(self, pool: WorkerPool, balancing: asyncio.Task[None]) -> None:
        """Let workers finish within the budget, or until asked again; then cancel them."""
        budget = self.settings.host.stop_timeout
        self.events.stopping(len(pool.leases), budget)
        pool.stop()
        orderly = asyncio.ensure_future(self._drained(pool, balancing))
        asked_again = asyncio.ensure_future(self._stop.at_once.wait())
        await asyncio.wait(
            (orderly, asked_again), timeout=budget, return_when=asyncio.FIRST_COMPLETED
        )
        asked_again.cancel()
        orderly.cancel()
        balancing.cancel()
        await pool.cancel_all()

    async def _drained(self, pool: WorkerPool, balancing: asyncio.Task[None]) -> None:
        with suppress(StoreError, NameTaken):
            await self._membership.announce_stopping()
        await asyncio.wait([balancing])
        await pool.ended()
