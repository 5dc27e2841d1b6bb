"""What happens in a host, reported once: a line in the log, a count in the metrics.

The rest of the host names events (``events.acquired(...)``) and knows neither the log's
format nor the instruments.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec
from opentelemetry import metrics
from opentelemetry.metrics import Observation

from changefeed.feeds.feed import Position, RangeId
from changefeed.host import metrics as m
from changefeed.host.calls import Overdue
from changefeed.host.metrics import Activity
from changefeed.host.settings import ObserverSettings
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.fleet import Fleet
from changefeed.leases.health import MAX_TEXT, WaitingKey
from changefeed.leases.lease import HostName, Lease, RangeEnd
from changefeed.observers.dead_letters import DeadLetter
from changefeed.observers.error_text import describe, text_of
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.judge import Waiting
from changefeed.observers.observer import CloseReason
from changefeed.runtime.logs import get_logger
from changefeed.runtime.printable import one_line

_log = get_logger()


class Lag(NamedTuple):
    """How far a range is behind: in changes, and the age of the first of them in seconds,
    ``None`` where that is not known.
    """

    changes: int
    seconds: float | None


_TOLD_KEYS: Final = 10
STUCK_AFTER: Final = 300.0
"""How long one call of the observer may take, and with manual checkpoints how long it may leave
the oldest of what it was given unacknowledged, before the range counts as stuck: in status,
health, metrics, and one warning. Nothing is ended for it."""


class HostEvents(FailureLog):
    """The events of one host. Ranges appear as the attribute ``range``; ``wall`` gives seconds
    since 1970.
    """

    def __init__(
        self,
        host: HostName,
        meter: metrics.Meter | None = None,
        *,
        processor: str = "",
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(_log.bind(host=host))
        self.lags: dict[RangeId, Lag] = {}
        """The lag last measured of each range that is owned, or reported for the fleet."""
        self.unassigned: Mapping[RangeId, str] = {}
        """The ranges whose lag this host reports for the fleet, and why no host reads them."""
        self.paused: Mapping[RangeId, str] = {}
        """The ranges that were paused in the last listing, with the reasons."""
        self._moves: Counter[str] = Counter()  # since the last line about them
        self._members: list[HostName] | None = None  # likewise, if others are alive
        self._rules: Mapping[str, object] = {}  # likewise, if they are others
        self._failure: Mapping[str, str] = {}
        self.request_units: Callable[[], float | None] = lambda: None
        """Says what reading the feed has cost so far."""
        self.activity = Activity(wall)
        self._metrics = m.HostMetrics(
            meter or metrics.get_meter("changefeed"),
            processor,
            [
                (m.LAG, self._read_lags),
                (m.LAG_TIME, self._read_lag_times),
                (m.FAILING, self.activity.read_failing),
                (m.WAITING, self.activity.read_waiting),
                (m.LOAD, self._read_loads),
                (m.OWNED, lambda: [Observation(len(self.activity.ranges))]),
                (m.PAUSED, lambda: [Observation(len(self.paused))]),
                (m.EVENT_LOOP_LAG, lambda: [Observation(self.activity.loop_lag)]),
            ],
            [(m.REQUEST_UNITS, self._read_request_units)],
        )

    # the host

    def started(self, incarnation: str, feed: str, container: str) -> None:
        self._log.info("host.started", incarnation=incarnation, feed=feed, leases=container)

    def rules_changed(self, expiration: float, balance: str) -> None:
        """Report what all hosts go by, with the next line about what has moved."""
        self._rules = {"expiration": expiration, "balance": balance}

    def waiting_for_name(self, incarnation: str, seconds: float) -> None:
        self._log.info(
            "host.waiting",
            reason="an earlier start of this name may still live",
            incarnation=incarnation,
            seconds=seconds,
        )

    def no_answer(self, operation: str, seconds: float) -> None:
        self._log.warning("host.waiting", reason=f"no answer yet: {operation}", seconds=seconds)

    def failed(self, error: BaseException) -> None:
        """Keep why the host stops: the lines of its stop say so."""
        text = str(error) or repr(error)
        self._failure = {"error": text, "kind": type(error).__name__}

    def stopping(self, leases: int, seconds: float) -> None:
        level = logging.ERROR if self._failure else logging.INFO
        self._log.log(level, "host.stopping", leases=leases, budget=seconds, **self._failure)

    def stopped(self, incomplete: Exception | None) -> None:
        level, fields = logging.INFO, {"released": self._moved()["released"], **self._failure}
        if incomplete is not None:
            level, fields["incomplete"] = logging.WARNING, str(incomplete)
        self._log.log(logging.ERROR if self._failure else level, "host.stopped", **fields)

    def loop_blocked(self, seconds: float, limit: float) -> None:
        self._log.warning(
            "host.blocked",
            seconds=round(seconds, 3),
            limit=limit,
            advice="make user code that blocks it a plain function, or give it more CPU",
        )

    # leases

    def created(self, lease: Lease) -> None:
        self._moves["created"] += 1
        self._log.debug("lease.created", range=lease.range_id, position=lease.position)

    def acquired(
        self, lease: Lease, position: Position, how: str, previous: HostName | None
    ) -> None:
        self._moves["acquired"] += 1
        self.activity.acquired(lease, position)
        self._metrics.count(m.ACQUISITIONS, how=how)
        if how == "stolen":
            self._metrics.count(m.STEALS)
        deaths = lease.deaths
        if deaths.count and deaths.with_suspect and how != "stolen":
            self._metrics.count(m.DEATHS, range=lease.range_id)
        self._log.log(
            logging.WARNING if deaths.care else logging.DEBUG,
            "lease.acquired",
            range=lease.range_id,
            epoch=lease.epoch,
            how=how,
            previous=previous,
            position=position,
            **({"deaths": msgspec.to_builtins(deaths)} if deaths != NO_DEATHS else {}),
        )

    def balanced(self, leases: int) -> None:
        """Report who came or went, what has moved, and what all go by if that has changed;
        ``leases`` is how many there are.
        """
        self.activity.sample()
        if not (self._moves or self._rules or self._members is not None):
            return
        more = dict(self._rules)
        if self._members is not None:
            more["members"] = self._members
        self._rules, self._members = {}, None
        self._log.info(
            "host.balanced", **self._moved(), **more, owns=len(self.activity.ranges), of=leases
        )

    def _moved(self) -> dict[str, int]:
        moves, self._moves = self._moves, Counter()
        return {x: moves[x] for x in ("acquired", "released", "lost", "created")}

    def conflict(self, lease: Lease, operation: str) -> None:
        self._metrics.count(m.CONFLICTS)
        self._log.debug("lease.conflict", range=lease.range_id, operation=operation)

    def renewed(self) -> None:
        self._metrics.count(m.RENEWALS)

    def checkpointed(self, range_id: RangeId, position: Position) -> None:
        known = self.activity.of(range_id)
        known.position, known.checkpoint_at = position, self.activity.wall()
        self._metrics.count(m.CHECKPOINTS, range=range_id)

    def requested(self, lease: Lease, what: Literal["asked", "withdrawn"]) -> None:
        """Report what became of the request for a lease."""
        self._log.debug("lease.requested", range=lease.range_id, owner=lease.owner, what=what)

    def given_up(self, lease: Lease, reason: CloseReason) -> None:
        """Report that a lease was given up in an orderly way, or lost."""
        lost = reason is CloseReason.LEASE_LOST
        self._moves["lost" if lost else "released"] += 1
        if lost:
            self._metrics.count(m.LOSSES)
        level, how = (logging.WARNING, "lost") if lost else (logging.DEBUG, "released")
        self._released(lease, level, how, reason.value)

    def left_to_expire(self, lease: Lease, reason: str) -> None:
        """Report that a lease keeps our name: others have to wait until it expires."""
        self._released(lease, logging.ERROR, "left to expire", reason)

    def _released(self, lease: Lease, level: int, how: str, reason: str) -> None:
        name = lease.range_id
        self.lags.pop(name, None)
        self.activity.given_up(name)
        self._log.log(
            level, "lease.released", range=name, epoch=lease.epoch, how=how, reason=reason
        )

    def listed(self, fleet: Fleet, unassigned: Mapping[RangeId, str]) -> None:
        """Report what a listing shows: who lives, with the next line about what has moved;
        which ranges are paused by now; and the lags of ``unassigned``, with why no host reads
        them.
        """
        if fleet.alive != self.activity.fleet.alive:
            self._members = sorted(fleet.alive)
        self.activity.fleet = fleet
        paused = {x.range_id: x.paused for x in fleet.leases.values() if x.paused}
        before, self.paused = self.paused, paused
        for name in sorted(paused.keys() - before.keys()):
            self._log.warning(
                "range.paused",
                range=name,
                reason=paused[name],
                advice="mend the cause, then resume the range",
            )
        for name in sorted(before.keys() - paused.keys()):
            self._log.info("range.resumed", range=name)
        self.unassigned = unassigned
        shown = {*unassigned, *self.activity.ranges}
        self.lags = {x: lag for x, lag in self.lags.items() if x in shown}

    def ended(self, range_id: RangeId, end: RangeEnd) -> None:
        """Report that a range was read to its end, or split by its owner, and what goes on."""
        into = [x.range.id for x in end.children]
        self._log.info("range.ended", range=range_id, by=end.by, into=into)

    def deleted(self, lease: Lease, reason: str) -> None:
        self._log.debug("lease.deleted", range=lease.range_id, reason=reason)

    # reading

    def batch(self, range_id: RangeId, changes: int, seconds: float) -> None:
        known = self.activity.of(range_id)
        known.done += changes
        known.health = known.health.progressed(self.activity.wall())
        self._metrics.count(m.CHANGES, changes, range=range_id)
        self._metrics.count(m.BATCHES, range=range_id)
        self._metrics.observer_took(seconds)

    def lag(self, range_id: RangeId, lag: Lag) -> None:
        """Take in the lag of a range that is owned, or that no host reads."""
        if range_id in self.activity.ranges or range_id in self.unassigned:
            self.lags[range_id] = lag

    # failures

    def retrying(self, operation: str, error: BaseException, delay: float) -> None:
        """A call of feed or container failed; it is tried again after ``delay`` seconds."""
        self._metrics.count(m.CALL_FAILURES, operation=operation)
        self._log.warning(
            "call.failed",
            operation=operation,
            error=str(error),
            kind=type(error).__name__,
            again_after=round(delay, 3),
        )

    def observer_retrying(
        self, range_id: RangeId, attempt: int, error: BaseException, delay: float
    ) -> None:
        self.activity.failed(range_id, describe(error))
        self._metrics.count(m.RETRIES, range=range_id)
        super().observer_retrying(range_id, attempt, error, delay)

    def keys_wait(
        self, range_id: RangeId, waiting: Collection[Waiting], *, outage: bool
    ) -> None:
        oldest = next(iter(waiting), None)
        longest = None
        if oldest is not None:
            longest = WaitingKey(
                key=one_line(oldest.change.key, MAX_TEXT),
                sequence=oldest.change.sequence,
                tries=oldest.tries,
                error=one_line(describe(oldest.error), MAX_TEXT),
                next_try=None if outage else self.activity.wall_time_of(oldest.until),
            )
        known = self.activity.of(range_id)
        known.health = known.health.waits(len(waiting), longest)

    def observer_stuck(self, range_id: RangeId, error: BaseException) -> None:
        self._metrics.count(m.STUCK, range=range_id)
        super().observer_stuck(range_id, error)

    def waited_for(
        self, range_id: RangeId, settings: ObserverSettings, overdue: Overdue | None
    ) -> None:
        """Report a call that goes on and on, or what is never acknowledged, once, until nothing
        is overdue any more. A call that has no time limit may never end; acknowledgements have
        none.
        """
        known = self.activity.of(range_id)
        if overdue is None:
            known.health = known.health.returned()
            return
        if known.health.stuck_since is not None:
            return
        since = self.activity.wall() - overdue.seconds
        known.health = known.health.stuck(since)
        if overdue.what == "acknowledgement":
            advice = "it has not acknowledged what it was given: see that it does"
        else:
            advice = "it was called and has not come back: look at what it waits for"
            if settings.timeout is None:
                advice += "; observer.timeout ends such calls"
        self._log.warning(
            "observer.stuck",
            range=range_id,
            since=datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
            seconds=round(overdue.seconds),
            advice=advice,
        )

    def observer_gave_up(self, range_id: RangeId, error: BaseException, delay: float) -> None:
        self._metrics.count(m.RETRIES_EXHAUSTED, range=range_id)
        self.activity.failed(range_id, text_of(error))
        super().observer_gave_up(range_id, error, delay)

    def range_paused(self, range_id: RangeId, reason: str) -> None:
        """Report that observer or feed have failed for good, and that the range is paused."""
        self.activity.failed(range_id, reason)
        self._log.error("range.paused", range=range_id, reason=reason)

    def range_full(self, range_id: RangeId, keys: Collection[str], room: int) -> None:
        """Report that a range has as many changes in memory as it may, behind these keys."""
        self._log.warning(
            "range.full",
            range=range_id,
            max_unacknowledged=room,
            waiting=len(keys),
            keys=[one_line(x, MAX_TEXT) for x in islice(keys, _TOLD_KEYS)],
            advice="mend why their changes fail, or give them up: changefeed dead-letters park",
        )

    def dead_letter(self, letter: DeadLetter) -> None:
        self._metrics.count(m.DEAD_LETTERS, range=letter.range_id)
        super().dead_letter(letter)

    def store_request(self, operation: str) -> None:
        self._metrics.count(m.STORE_REQUESTS, operation=operation)

    def _read_loads(self) -> list[Observation]:
        listed = self.activity.fleet.leases
        loads = {x: listed[x].load for x in list(self.activity.ranges) if x in listed}
        return [Observation(y, {"range": x}) for x, y in loads.items() if y is not None]

    def _read_request_units(self) -> list[Observation]:
        spent = self.request_units()
        return [] if spent is None else [Observation(spent)]

    def _read_lags(self) -> list[Observation]:
        return [Observation(lag.changes, labels) for labels, lag in self._all_lags()]

    def _read_lag_times(self) -> list[Observation]:
        return [
            Observation(lag.seconds, labels)
            for labels, lag in self._all_lags()
            if lag.seconds is not None
        ]

    def _all_lags(self) -> list[tuple[Mapping[str, str], Lag]]:
        """Copy in one step, because metrics are read in another thread."""
        lags, states = dict(self.lags), dict(self.unassigned)
        states |= dict.fromkeys(self.activity.ranges, "owned")
        return [
            ({"range": x, "state": states[x]}, lag) for x, lag in lags.items() if x in states
        ]
