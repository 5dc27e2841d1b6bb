"""What people see of a host: its instruments, as a table, and what it did lately, how its
ranges get on, and what it last listed of its fleet.

Activity is written where things happen; rates are made of it once a round of balancing.

Names follow OpenTelemetry; without a configured provider they cost next to nothing.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.fleet import NOTHING_LISTED
from changefeed.leases.health import NOTHING_KNOWN, RangeHealth
from changefeed.leases.lease import Lease
from changefeed.runtime.linked_tasks import label_of


class Instrument(NamedTuple):
    """What OpenTelemetry wants to know of one."""

    name: str
    unit: str
    description: str


CHANGES = Instrument(
    "changefeed.changes", "{change}", "Changes handed to the observer and done"
)
BATCHES = Instrument("changefeed.batches", "{batch}", "Batches handed to the observer and done")
RETRIES = Instrument(
    "changefeed.observer.retries", "{retry}", "Failed calls that are tried again"
)
STUCK = Instrument(
    "changefeed.observer.stuck", "{call}", "Calls that did not end and were left behind"
)
RETRIES_EXHAUSTED = Instrument(
    "changefeed.observer.retries_exhausted", "{batch}", "Batches whose retries are used up"
)
DEAD_LETTERS = Instrument(
    "changefeed.dead_letters", "{change}", "Changes put to the dead letters"
)
DEATHS = Instrument(
    "changefeed.range.deaths",
    "{process}",
    "Processes that died while they delivered one change alone",
)
CHECKPOINTS = Instrument("changefeed.checkpoints", "{checkpoint}", "Checkpoints written")
RENEWALS = Instrument("changefeed.lease.renewals", "{renewal}", "Leases renewed")
CONFLICTS = Instrument(
    "changefeed.lease.conflicts", "{conflict}", "Lease writes that another host won"
)
ACQUISITIONS = Instrument("changefeed.lease.acquisitions", "{lease}", "Leases acquired, by how")
STEALS = Instrument("changefeed.lease.steals", "{lease}", "Leases stolen from living hosts")
LOSSES = Instrument("changefeed.lease.losses", "{lease}", "Leases lost without being given up")
STORE_REQUESTS = Instrument(
    "changefeed.store.requests", "{request}", "Requests to the stores of leases, by operation"
)
CALL_FAILURES = Instrument(
    "changefeed.call.failures", "{call}", "Failed calls of feed and store, tried again"
)
REQUEST_UNITS = Instrument(
    "changefeed.feed.request_units",
    "{request_unit}",
    "Request units that reading the feed has cost, where its service charges for them",
)
_COUNTERS = (
    CHANGES,
    BATCHES,
    RETRIES,
    STUCK,
    RETRIES_EXHAUSTED,
    DEAD_LETTERS,
    DEATHS,
    CHECKPOINTS,
    RENEWALS,
    CONFLICTS,
    ACQUISITIONS,
    STEALS,
    LOSSES,
    STORE_REQUESTS,
    CALL_FAILURES,
)

OBSERVER_TIME = Instrument(
    "changefeed.observer.duration", "s", "Time the observer took for one batch"
)
_FROM_A_MILLISECOND_TO_TEN_MINUTES = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
"""Without them a histogram has OpenTelemetry's buckets, which are for milliseconds."""

_BY_NOTHING = (RENEWALS, CONFLICTS, STEALS, LOSSES)
"""Counters without attributes. They start at 0, so that the first event is an increase."""

LAG = Instrument(
    "changefeed.lag", "{change}", "Changes in the range that the observer has not had"
)
LAG_TIME = Instrument(
    "changefeed.lag_time", "s", "Age of the first change that the observer has not had"
)
OWNED = Instrument("changefeed.lease.owned", "{lease}", "Leases this host owns")
PAUSED = Instrument(
    "changefeed.range.paused",
    "{range}",
    "Ranges that no host reads until they are resumed, as last listed",
)
FAILING = Instrument(
    "changefeed.range.failing",
    "{range}",
    "1 while the observer of a range fails or does not come back, else 0",
)
WAITING = Instrument(
    "changefeed.range.waiting",
    "{key}",
    "Keys of a range that wait for another try: others go on, or the observer fails on all",
)
LOAD = Instrument(
    "changefeed.range.load",
    "{second}",
    "Busy seconds in each second that a range costs its owner, as its lease says",
)
EVENT_LOOP_LAG = Instrument(
    "changefeed.event_loop.lag",
    "s",
    "How late the event loop is: user code that blocks it shows here",
)

Reading = Callable[[], Iterable[Observation]]
"""Reads a gauge, when its metric is collected."""


class HostMetrics:
    """The counters and gauges of one host. Each value has the attribute ``processor``, where
    the host is of one that has a name.
    """

    def __init__(
        self,
        meter: metrics.Meter,
        processor: str,
        gauges: Iterable[tuple[Instrument, Reading]],
        totals: Iterable[tuple[Instrument, Reading]],
    ) -> None:
        self._own = label_of(processor)
        self._counters = {x: meter.create_counter(*x) for x in _COUNTERS}
        for one in _BY_NOTHING:
            self.count(one, 0)
        self._observer_time = meter.create_histogram(
            *OBSERVER_TIME,
            explicit_bucket_boundaries_advisory=_FROM_A_MILLISECOND_TO_TEN_MINUTES,
        )
        for kind, instruments in (
            (meter.create_observable_gauge, gauges),
            (meter.create_observable_counter, totals),
        ):
            for x, read in instruments:
                kind(x.name, [self._callback(read)], x.unit, x.description)

    def count(self, instrument: Instrument, amount: int = 1, **attributes: str) -> None:
        self._counters[instrument].add(amount, {**self._own, **attributes})

    def observer_took(self, seconds: float, **attributes: str) -> None:
        self._observer_time.record(seconds, {**self._own, **attributes})

    def _callback(self, read: Reading) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: (
            Observation(x.value, {**self._own, **(x.attributes or {})}) for x in read()
        )


_RATE_OVER = 10.0


@dataclass(slots=True, kw_only=True)
class RangeActivity:
    """``since`` is when this host acquired the range, ``checkpoint_at`` when it last wrote a
    checkpoint of it, both in seconds since 1970; ``position`` is that checkpoint. Observers
    were done with ``done`` changes since the last sample, and before it with ``rate`` a second.
    """

    since: float
    position: Position
    health: RangeHealth = NOTHING_KNOWN
    checkpoint_at: float | None = None
    done: int = 0
    rate: float = 0.0


class Activity:
    """What one host does. ``wall`` gives seconds since 1970."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self.wall = wall
        self.started_at = wall()
        self.ranges: dict[RangeId, RangeActivity] = {}
        """Those that are owned."""
        self.fleet = NOTHING_LISTED
        """As last listed."""
        self.loop_lag = 0.0
        """How late the event loop was when it was last measured, in seconds."""
        self._window = self.started_at

    def sample(self) -> None:
        """Make rates, if the last ones are old enough."""
        now = self.wall()
        seconds = now - self._window
        if 0 <= seconds < _RATE_OVER:
            return
        for x in self.ranges.values():
            if seconds > 0:  # else the clock was set back
                x.rate = x.done / seconds
            x.done = 0
        self._window = now

    # one range

    def acquired(self, lease: Lease, position: Position) -> None:
        """Go on from what the lease says: what failed for its former owner has not got on. It
        shows which keys wait when they are read.
        """
        health = replace(lease.health, waiting=0, oldest=None)
        self.ranges[lease.range_id] = RangeActivity(
            since=self.wall(), position=position, health=health
        )

    def of(self, range_id: RangeId) -> RangeActivity:
        """Return what is known of a range, to be changed in place: to no effect if this host
        does not own it, or no more.
        """
        return self.ranges.get(range_id) or RangeActivity(since=0.0, position=Position(""))

    def given_up(self, range_id: RangeId) -> None:
        self.ranges.pop(range_id, None)

    def failed(self, range_id: RangeId, error: str) -> None:
        known = self.of(range_id)
        known.health = known.health.failed(self.wall(), error)

    def wall_time_of(self, moment: float) -> float:
        """Return when a moment of the loop's clock is, in seconds since 1970."""
        return round(self.wall() + moment - asyncio.get_running_loop().time(), 1)

    # metrics, which are read in another thread

    def read_failing(self) -> list[Observation]:
        ranges = list(self.ranges.items())
        return [Observation(int(x.health.has_problem), {"range": name}) for name, x in ranges]

    def read_waiting(self) -> Iterator[Observation]:
        for name, known in list(self.ranges.items()):
            health = known.health
            is_outage = health.oldest is not None and health.oldest.next_try is None
            why = "outage" if is_outage else "failed"
            for reason in ("failed", "outage"):
                keys = health.waiting if reason == why else 0
                yield Observation(keys, {"range": name, "reason": reason})
