"""What happens, told once: a line in the log and a count in the metrics.

The rest of the host names events (``journal.acquired(...)``) and knows neither the log's
format nor the instruments. Metrics follow OpenTelemetry's naming; without a configured
provider they cost next to nothing.
"""

from collections.abc import Iterable, Mapping

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.lease import HostName, Lease
from changefeed.observers.dead_letters import DeadLetter
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.observer import CloseReason
from changefeed.runtime.logs import get_logger

_log = get_logger()


class HostEvents(FailureLog):
    """The events of one host. Ranges appear as the attribute ``range``."""

    def __init__(self, host: HostName, meter: metrics.Meter | None = None) -> None:
        super().__init__(_log.bind(host=host))
        meter = meter or metrics.get_meter("changefeed")
        self._changes = meter.create_counter(
            "changefeed.changes", "{change}", "Changes handed to the observer and done"
        )
        self._batches = meter.create_counter(
            "changefeed.batches", "{batch}", "Batches handed to the observer and done"
        )
        self._observer_time = meter.create_histogram(
            "changefeed.observer.duration", "s", "Time the observer took for one batch"
        )
        self._retries = meter.create_counter(
            "changefeed.observer.retries", "{retry}", "Batches that the observer failed on"
        )
        self._checkpoints = meter.create_counter(
            "changefeed.checkpoints", "{checkpoint}", "Checkpoints written"
        )
        self._renewals = meter.create_counter(
            "changefeed.lease.renewals", "{renewal}", "Leases renewed"
        )
        self._conflicts = meter.create_counter(
            "changefeed.lease.conflicts", "{conflict}", "Lease writes that another host won"
        )
        self._acquired = meter.create_counter(
            "changefeed.lease.acquisitions", "{lease}", "Leases acquired, by how"
        )
        self._steals = meter.create_counter(
            "changefeed.lease.steals", "{lease}", "Leases stolen from living hosts"
        )
        self._lost = meter.create_counter(
            "changefeed.lease.losses", "{lease}", "Leases lost without being given up"
        )
        self._errors = meter.create_counter(
            "changefeed.errors", "{error}", "Calls of feed and lease container that failed"
        )
        self._calls = meter.create_counter(
            "changefeed.container.calls", "{call}", "Calls of the lease container"
        )
        self._dead_letters = meter.create_counter(
            "changefeed.dead_letters", "{change}", "Changes put to the dead letters"
        )
        self._stuck = meter.create_counter(
            "changefeed.observer.stuck", "{call}", "Calls that did not end and were left behind"
        )
        self._lag: dict[RangeId, int] = {}
        self._paused: Mapping[RangeId, str] = {}
        self._owned: set[RangeId] = set()
        self._loop_lag = 0.0
        meter.create_observable_gauge(
            "changefeed.lag",
            [self._observe_lag],
            "{change}",
            "Changes in the range that the observer has not had",
        )
        meter.create_observable_gauge(
            "changefeed.leases.owned",
            [lambda _: [Observation(len(self._owned))]],
            "{lease}",
            "Leases this host owns",
        )
        meter.create_observable_gauge(
            "changefeed.ranges.paused",
            [lambda _: [Observation(len(self._paused))]],
            "{range}",
            "Ranges that nobody reads until they are resumed, as last listed",
        )
        meter.create_observable_gauge(
            "changefeed.loop.lag",
            [lambda _: [Observation(self._loop_lag)]],
            "s",
            "How late the event loop is: user code that blocks it shows here",
        )

    # the host

    def started(self, incarnation: str, feed: str, container: str) -> None:
        self._log.info("host.started", incarnation=incarnation, feed=feed, leases=container)

    def waiting_for_name(self, incarnation: str, seconds: float) -> None:
        self._log.info(
            "host.waiting",
            reason="an earlier start of this name may still live",
            incarnation=incarnation,
            seconds=seconds,
        )

    def stopping(self, leases: int, seconds: float) -> None:
        self._log.info("host.stopping", leases=leases, budget=seconds)

    def stopped(self) -> None:
        self._log.info("host.stopped")

    def failed(self, error: BaseException) -> None:
        self._log.error(
            "host.failed", error=str(error) or repr(error), kind=type(error).__name__
        )

    def members_changed(self, members: Iterable[HostName]) -> None:
        self._log.info("host.members", members=sorted(members))

    def loop_lag(self, seconds: float) -> None:
        self._loop_lag = seconds

    def loop_blocked(self, seconds: float, limit: float) -> None:
        self._log.warning(
            "host.blocked",
            seconds=round(seconds, 3),
            limit=limit,
            advice="user code blocks the event loop; make it a plain function",
        )

    # leases

    def created(self, lease: Lease) -> None:
        self._log.info("lease.created", range=lease.range_id, continuation=lease.continuation)

    def acquired(
        self, lease: Lease, continuation: Continuation, how: str, previous: HostName | None
    ) -> None:
        self._owned.add(lease.range_id)
        self._acquired.add(1, {"how": how})
        if how == "stolen":
            self._steals.add(1)
        self._log.info(
            "lease.acquired",
            range=lease.range_id,
            epoch=lease.epoch,
            how=how,
            previous=previous,
            continuation=continuation,
        )

    def conflict(self, lease: Lease, doing: str) -> None:
        self._conflicts.add(1)
        self._log.info("lease.conflict", range=lease.range_id, doing=doing)

    def renewed(self) -> None:
        self._renewals.add(1)

    def checkpointed(self, range_id: RangeId) -> None:
        self._checkpoints.add(1, {"range": range_id})

    def asked(self, lease: Lease) -> None:
        self._log.info("lease.asked_for", range=lease.range_id, owner=lease.owner)

    def withdrawn(self, lease: Lease) -> None:
        self._log.info("lease.request_withdrawn", range=lease.range_id, owner=lease.owner)

    def parting(self, lease: Lease, reason: CloseReason) -> None:
        self._log.info(
            "lease.parting",
            range=lease.range_id,
            epoch=lease.epoch,
            next_owner=lease.next_owner,
            reason=reason.value,
        )

    def parted(self, lease: Lease, reason: CloseReason) -> None:
        """Tell that a lease was given up in an orderly way, or lost."""
        self._owned.discard(lease.range_id)
        self._lag.pop(lease.range_id, None)
        lost = reason is CloseReason.LEASE_LOST
        if lost:
            self._lost.add(1)
        event = "lease.lost" if lost else "lease.released"
        self._log.log(
            30 if lost else 20,
            event,
            range=lease.range_id,
            epoch=lease.epoch,
            reason=reason.value,
        )

    def stuck(self, lease: Lease) -> None:
        """Tell that a lease is kept from others until it expires: a call may still run."""
        self._owned.discard(lease.range_id)
        self._lag.pop(lease.range_id, None)
        self._log.error(
            "lease.abandoned",
            range=lease.range_id,
            epoch=lease.epoch,
            reason="a call of the observer could not be ended; the lease is left to expire",
        )

    def listed_paused(self, paused: Mapping[RangeId, str]) -> None:
        """Tell which ranges are paused by now, if it is not as it was before."""
        before, self._paused = self._paused, paused
        for name in sorted(paused.keys() - before.keys()):
            self._log.warning(
                "range.is_paused",
                range=name,
                reason=paused[name],
                advice="mend the cause, then resume the range",
            )
        for name in sorted(before.keys() - paused.keys()):
            self._log.info("range.resumed", range=name)

    @property
    def paused(self) -> Mapping[RangeId, str]:
        """The ranges that were paused at the last look, with the reasons."""
        return self._paused

    def ended(self, range_id: RangeId, successors: Iterable[FeedRange]) -> None:
        self._log.info("range.ended", range=range_id, successors=[x.id for x in successors])

    def forgotten(self, lease: Lease, reason: str) -> None:
        self._log.info("lease.deleted", range=lease.range_id, reason=reason)

    # reading

    def batch(self, range_id: RangeId, changes: int, seconds: float) -> None:
        attributes = {"range": range_id}
        self._changes.add(changes, attributes)
        self._batches.add(1, attributes)
        self._observer_time.record(seconds, attributes)

    def lag(self, range_id: RangeId, changes: int) -> None:
        self._lag[range_id] = changes

    @property
    def lags(self) -> Mapping[RangeId, int]:
        """The lag last measured of each range that is owned."""
        return self._lag

    # failures

    def retrying(self, doing: str, error: BaseException, delay: float) -> None:
        """A call of feed or container failed; it is tried again after ``delay`` seconds."""
        self._errors.add(1, {"doing": doing})
        self._log.warning(
            "call.failed",
            doing=doing,
            error=str(error),
            kind=type(error).__name__,
            again_after=round(delay, 3),
        )

    def observer_retrying(
        self, range_id: RangeId, attempt: int, error: BaseException, delay: float
    ) -> None:
        self._retries.add(1, {"range": range_id})
        super().observer_retrying(range_id, attempt, error, delay)

    def observer_stuck(self, range_id: RangeId, error: BaseException) -> None:
        self._stuck.add(1, {"range": range_id})
        self._log.error("observer.stuck", range=range_id, error=str(error))

    def range_paused(self, range_id: RangeId, reason: str) -> None:
        """Tell that the observer has failed for good, and that the range stops for that."""
        self._log.error("range.paused", range=range_id, reason=reason)

    def dead_letter(self, letter: DeadLetter) -> None:
        self._dead_letters.add(1, {"range": letter.range_id})
        super().dead_letter(letter)

    def container_call(self, call: str) -> None:
        self._calls.add(1, {"call": call})

    def _observe_lag(self, _: CallbackOptions) -> list[Observation]:
        return [Observation(lag, {"range": name}) for name, lag in list(self._lag.items())]
