"""From settings to a host that can run: what is opened, in which order, and wrapped in what.

A store that is away when a host starts is asked again, with growing delays, until it answers:
a fleet may start before its stores do. What asking again cannot mend is raised at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, TypeAlias, TypeVar

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider, get_tracer_provider
from prometheus_client import CollectorRegistry

from changefeed import __version__
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import Feed
from changefeed.host.child_start import ChildStart
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.host import Host
from changefeed.host.settings import LeaseSettings, ObserverSettings, Settings
from changefeed.host.shared import Process
from changefeed.leases.addresses import open_container, open_stores
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet_record import join_fleet
from changefeed.leases.lease import HostName
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import DeadLetters, Origin, open_dead_letters
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.observer import ObserverFactory
from changefeed.observers.range_observers import ObserverSetup
from changefeed.observers.registry import load_observer, spelled
from changefeed.observers.trace_context import TraceContextPointer
from changefeed.observers.tracing import BatchTracing
from changefeed.runtime.calls import Patience
from changefeed.runtime.errors import StoreUnavailable, UserError
from changefeed.runtime.linked_tasks import label_of
from changefeed.runtime.telemetry import own_metrics
from changefeed.stores.addresses import shared_place, without_secrets

Opened = TypeVar("Opened")
Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Opened]]
"""Opens something: again, where it did not answer."""
_PATIENCE = 5.0  # seconds for which a refusal counts as no answer, when a host starts
_WARN_AFTER_SECONDS = 10.0
"""After so many seconds without an answer the log says what a host waits for."""


def open_leases(
    settings: Settings, *, must_exist: bool = False, only_look: bool = False
) -> AbstractAsyncContextManager[LeaseContainer]:
    """Open the container that the settings name: one, or two stores that act as one.

    With ``must_exist`` nothing is made: raise ``StoreMissing`` where it is not there. With
    ``only_look`` nothing will be written, and leases that cannot be shared are shown.
    """
    create = settings.leases.create and not must_exist
    options = replace(
        settings.open_options, create=create, must_exist=must_exist, only_look=only_look
    )
    match settings.leases.addresses:
        case (ownership, checkpoints):
            return open_stores(ownership, checkpoints, options)
        case (container,):
            return open_container(container, options)


def find_observer(settings: ObserverSettings) -> ObserverFactory:
    """Find the observer that the settings name. Raise ``UserError`` with advice."""
    if settings.name is None:
        raise UserError(
            "no observer was named; give one with --observer module:Class, or try "
            "--observer log"
        )
    return load_observer(settings.name, settings.options)


@asynccontextmanager
async def open_host(
    settings: Settings,
    observer: Any = None,
    *,
    feed: Feed | None = None,
    leases: LeaseContainer | None = None,
    meters: MeterProvider | None = None,
    tracers: TracerProvider | None = None,
    address: str = "",
) -> AsyncIterator[Host]:
    """Open the feed and the lease container, and yield a host over them that can ``run``.

    ``observer`` is a class or a function (see ``Observer``), made with
    ``settings.observer.options``; without one, ``settings.observer.name`` says which.
    ``feed`` and ``leases`` go before the addresses in the settings, and stay open: give a
    ``MemoryFeed``, or a container of your own. The host counts in a registry of its own, which
    its endpoints show at ``/metrics``, or with the ``meters`` of your program. Spans of batches
    go to ``tracers``, or else to OpenTelemetry's global ones.

    A host that still runs when the block is left stops in order first. Stores that do not
    answer are asked again until they do, or until this is cancelled. Raise
    ``UserError``, ``FeedRefused`` or ``StoreRefused``, with advice, for what cannot
    be opened as it is.
    """
    async with guest_host(
        settings,
        observer,
        feed=None if feed is None else lambda: nullcontext(feed),
        leases=None if leases is None else lambda: nullcontext(leases),
        meters=meters,
        tracers=tracers,
        address=address,
    ) as host:
        yield host


@asynccontextmanager
async def guest_host(
    settings: Settings,
    observer: Any = None,
    *,
    feed: Opening[Feed] | None = None,
    leases: Opening[LeaseContainer] | None = None,
    meters: MeterProvider | None = None,
    tracers: TracerProvider | None = None,
    address: str = "",
    processor: str = "",
    process: Process | None = None,
) -> AsyncIterator[Host]:
    """Yield a host in somebody's program; see ``open_host`` and ``wire_host``."""
    config = settings.observer
    make = find_observer(config) if observer is None else adapt(observer, config.options)
    with (
        own_metrics("changefeed", settings.host.name)
        if meters is None
        else nullcontext((meters, None))
    ) as (counting, registry):
        async with wire_host(
            settings,
            make,
            meters=counting,
            registry=registry,
            tracers=tracers or get_tracer_provider(),
            feed=feed,
            leases=leases,
            address=address,
            name="" if observer is None else spelled(observer),
            processor=processor,
            process=process,
        ) as host:
            try:
                yield host
            finally:
                host.stop()
                await host.ended()


@asynccontextmanager
async def wire_host(
    settings: Settings,
    make: ObserverFactory,
    *,
    meters: MeterProvider,
    registry: CollectorRegistry | None,
    tracers: TracerProvider | None,
    feed: Opening[Feed] | None = None,
    leases: Opening[LeaseContainer] | None = None,
    address: str = "",
    name: str = "",
    start: ChildStart | None = None,
    processor: str = "",
    process: Process | None = None,
) -> AsyncIterator[Host]:
    """Open what is given, or what the settings name, and yield a host over it; see
    ``open_host``. Without ``tracers`` there are no spans, and nothing is spent on them.
    ``name`` is that of an observer that the settings do not name. Of several processors in a
    process, ``processor`` is the name of this one, and ``process`` what they share.
    """
    # A meter of its own: the gauges of a second host would be dropped as known already.
    meter = meters.get_meter("changefeed", attributes=label_of(processor) or None)
    events = HostEvents(HostName(settings.host.name), meter, processor=processor)
    random = Random()  # noqa: S311 - spreads timers, guards nothing
    retrier, patience = Retrier(events, random), Patience(_PATIENCE)
    async with AsyncExitStack() as stack:

        async def opened(
            name: str,
            make: Opening[Opened],
            unavailable: Callable[[str], Exception],
        ) -> Opened:
            async def attempt() -> Opened:
                with _warning_if_slow(name, events):
                    opening = stack.enter_async_context(make())
                    return await patience.ask(name, opening, unavailable)

            return await retrier.call(name, attempt)

        process = process or Process()
        options = replace(settings.open_options, budgets=process.budgets)
        changes = await opened(
            "open feed",
            feed or (lambda: open_feed(settings.feed.address, options)),
            FeedUnavailable,
        )
        container = await opened(
            "open leases", leases or (lambda: open_leases(settings)), StoreUnavailable
        )
        read_from = settings.feed.address if feed is None else changes.identity
        await retrier.call("join", partial(join_fleet, container, changes.identity))
        dead_letters = await opened(
            "open dead letters", lambda: _dead_letters(settings), StoreUnavailable
        )
        origin = Origin(
            feed=changes.identity,
            observer=settings.observer.name or name,
            fleet="" if leases is not None else _fleet(settings.leases),
        )
        letters = None if dead_letters is None else LetterWriter(dead_letters, origin)
        host = Host(
            settings,
            feed=changes,
            container=container,
            observers=ObserverSetup(make, settings.observer, events, random, letters=letters),
            tracing=None if tracers is None else _tracing(settings, read_from, tracers),
            events=events,
            address=address,
            process=process,
            start=start,
            registry=registry,
            random=random,
        )
        kept_at = without_secrets(" with ".join(settings.leases.addresses))
        events.started(
            host.incarnation, read_from, "the program's" if leases is not None else kept_at
        )
        yield host


@contextmanager
def _warning_if_slow(name: str, events: HostEvents) -> Iterator[None]:
    """Clients try for minutes where a store takes connections and does not answer."""
    warn = partial(events.no_answer, name, _WARN_AFTER_SECONDS)
    timer = asyncio.get_running_loop().call_later(_WARN_AFTER_SECONDS, warn)
    try:
        yield
    finally:
        timer.cancel()


def _fleet(settings: LeaseSettings) -> str:
    return " with ".join(map(shared_place, settings.addresses))


def _tracing(settings: Settings, read_from: str, tracers: TracerProvider) -> BatchTracing:
    """Name the feed by its address, or by its identity where a program has brought it."""
    pointer = settings.observer.trace_context
    by_address = read_from == settings.feed.address
    return BatchTracing(
        tracer=tracers.get_tracer("changefeed", __version__),
        system=read_from.partition(":")[0] if by_address else "changefeed",
        feed=without_secrets(read_from) if by_address else read_from,
        host=settings.host.name,
        pointer=None if pointer is None else TraceContextPointer(pointer),
    )


def _dead_letters(settings: Settings) -> AbstractAsyncContextManager[DeadLetters | None]:
    """Open them before anything has failed, where they may be wanted."""
    if settings.observer.on_failure != "dead-letter":
        return nullcontext()
    return open_dead_letters(settings.observer.dead_letters, settings.open_options)
