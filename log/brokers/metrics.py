"""What a broker counts, in OpenTelemetry's words; docs/cluster.md lists it."""

import time
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from changefeed.log.brokers.core import CoreStatus
from changefeed.log.protocol.messages import Answer, AppendReceipt, AppendRequest, ReadResult

_Value = Callable[[CoreStatus], float]

SECONDS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""Buckets of what takes milliseconds, and a minute where a store does not answer."""
_BUCKET = 60.0

_GAUGES: tuple[tuple[str, str, str, _Value], ...] = (
    ("era", "", "The era that it knows", lambda x: x.era),
    ("catalog", "", "The catalog that it knows", lambda x: x.catalog),
    ("writing", "", "1 where it takes records", lambda x: int(x.writing)),
    ("master", "", "1 where it acts as master", lambda x: int(x.master)),
    ("producers", "{producer}", "Producers that it remembers", lambda x: x.producers),
    ("members", "{broker}", "Brokers alive, as it sees them", lambda x: len(x.living)),
    ("buffered", "By", "Records that wait to be written", lambda x: x.buffered),
    ("cached", "By", "Objects in memory", lambda x: x.cached),
)
_COUNTERS: tuple[tuple[str, str, str, _Value], ...] = (
    ("cache.hits", "{object}", "Objects found in memory", lambda x: x.cache_hits),
    ("cache.misses", "{object}", "Objects read from the store", lambda x: x.cache_misses),
    ("compaction.objects", "{object}", "Compacted objects", lambda x: x.compaction.objects),
    ("compaction.records", "{record}", "Compacted records", lambda x: x.compaction.records),
    ("compaction.segments", "{segment}", "Segments written", lambda x: x.compaction.segments),
    ("compaction.bytes", "By", "Bytes of segments written", lambda x: x.compaction.bytes),
    ("compaction.failures", "{run}", "Runs not compacted", lambda x: x.compaction.failed),
    ("deleted", "{object}", "Objects deleted", lambda x: x.objects_deleted),
)


class BrokerMetrics:
    """The counters that a server adds to."""

    def __init__(self, meters: MeterProvider) -> None:
        meter = meters.get_meter("changefeed")
        self._duration = meter.create_histogram(
            "changefeed.broker.append.duration",
            "s",
            "From a request to append to its answer",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._records = meter.create_counter(
            "changefeed.broker.records", "{record}", "Records appended"
        )
        self._bytes = meter.create_counter("changefeed.broker.bytes", "By", "Bytes appended")
        self._refusals = meter.create_counter(
            "changefeed.broker.refusals", "{request}", "Requests not appended, by reason"
        )
        self._read = meter.create_counter(
            "changefeed.broker.read.records", "{record}", "Records sent to readers"
        )
        self._behind = ReadLag()
        meter.create_observable_gauge(
            "changefeed.broker.read.lag",
            [self._worst],
            "{record}",
            "How far the last of the readers was behind in the last minute, by collection",
        )

    def appended(
        self, collection: str, request: AppendRequest, answer: Answer, seconds: float
    ) -> None:
        where = {"collection": collection}
        assert seconds >= 0, f"{collection} answered {-seconds} s before it was asked"
        self._duration.record(seconds, where)
        if not isinstance(answer, AppendReceipt):
            self._refusals.add(1, {**where, "reason": answer.reason})
        elif not answer.duplicate:
            self._records.add(sum(x.count for x in request.batches), where)
            self._bytes.add(request.bytes, where)

    def read(self, collection: str, result: ReadResult, behind: int | None) -> None:
        """Count a read that has left so many records; ``None`` where that is not known."""
        self._read.add(sum(x.count for x in result.blocks), {"collection": collection})
        if behind is not None:
            self._behind.add(collection, behind, time.monotonic())

    def _worst(self, _: CallbackOptions) -> Iterable[Observation]:
        worst = self._behind.worst(time.monotonic())
        return [Observation(x, {"collection": name}) for name, x in worst.items()]


class ReadLag:
    """How far the last of the readers was behind, by collection, over the last minute or two.

    A minute is one bucket, so nothing is kept for each read.
    """

    def __init__(self) -> None:
        self._minute = 0
        self._now: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def add(self, collection: str, behind: int, now: float) -> None:
        assert behind >= 0, f"a reader of {collection} is {-behind} records ahead"
        self._turn(now)
        self._now[collection] = max(behind, self._now.get(collection, 0))

    def worst(self, now: float) -> dict[str, int]:
        """Return the largest number of records, of each collection that was read."""
        self._turn(now)
        names = {*self._before, *self._now}
        return {x: max(self._before.get(x, 0), self._now.get(x, 0)) for x in names}

    def _turn(self, now: float) -> None:
        minute = int(now // _BUCKET)
        if minute != self._minute:
            self._before = self._now if minute == self._minute + 1 else {}
            self._minute, self._now = minute, {}


class CoreGauges:
    """What the core says of itself. Metrics are read in a thread of their own, where the core
    must not be asked: so ``show`` is called on the loop now and then.
    """

    def __init__(self, meters: MeterProvider) -> None:
        self._status: CoreStatus | None = None
        meter = meters.get_meter("changefeed")
        self._eras = meter.create_counter(
            "changefeed.broker.era_changes", "{era}", "Eras that began while it ran"
        )
        for name, unit, text, value in _GAUGES:
            meter.create_observable_gauge(
                f"changefeed.broker.{name}", [self._of(value)], unit, text
            )
        for name, unit, text, value in _COUNTERS:
            meter.create_observable_counter(
                f"changefeed.broker.{name}", [self._of(value)], unit, text
            )

    def show(self, status: CoreStatus) -> None:
        before, self._status = self._status, status
        if before is not None and before.era and status.era > before.era:
            self._eras.add(status.era - before.era)

    def _of(self, value: _Value) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if self._status is not None:
                yield Observation(value(self._status))

        return observe
