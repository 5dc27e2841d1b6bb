"""What the workers of one host share, and what the hosts of one process do."""

import asyncio
from dataclasses import dataclass, field

from changefeed.feeds.cosmos.spending import Budgets
from changefeed.feeds.feed import Feed
from changefeed.host.careful_delivery import CarefulDelivery
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.load_meter import SharedTime
from changefeed.host.reader import IdleRanges
from changefeed.host.settings import Settings
from changefeed.leases.lease import HostName
from changefeed.leases.timing import FleetRules
from changefeed.observers.range_observers import ObserverSetup
from changefeed.observers.tracing import BatchTracing

_GIVE_UPS_AT_ONCE = 64
"""A host that stops gives up all its leases: ten thousand calls at once would wait for each
other for longer than the call timeout, and each would count as one without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What its hosts share, one for each processor: ``turn`` is to deliver a change alone, as
    ``care`` does; ``budgets`` are what their feeds may spend.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    budgets: Budgets = field(default_factory=Budgets)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """``give_ups`` bounds how many leases are given up at once; ``shared_time`` is what their
    calls share. Without ``tracing`` batches have no spans.
    """

    host: HostName
    feed: Feed
    observers: ObserverSetup
    tracing: BatchTracing | None
    settings: Settings
    rules: FleetRules
    idle: IdleRanges
    events: HostEvents
    retrier: Retrier
    care: CarefulDelivery
    shared_time: SharedTime
    give_ups: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_GIVE_UPS_AT_ONCE)
    )
