"""What a broker counts, in OpenTelemetry's words; docs/cluster.md lists it."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from changefeed.brokers.core import CoreStatus
from changefeed.feeds.brokers.protocol import Answer, Appended, Batch, ReadResult

_Value = Callable[[CoreStatus], float]

_GAUGES: tuple[tuple[str, str, str, _Value], ...] = (
    ("era", "", "The era that it knows", lambda x: x.era),
    ("catalog", "", "The catalog that it knows", lambda x: x.catalog),
    ("writing", "", "1 where it takes records", lambda x: int(x.writing)),
    ("master", "", "1 where it acts as master", lambda x: int(x.master)),
    ("living", "{broker}", "Brokers alive, as it sees them", lambda x: len(x.living)),
    ("buffered", "By", "Records that wait to be written", lambda x: x.buffered),
    ("cached", "By", "Objects in memory", lambda x: x.cached),
)
_COUNTERS: tuple[tuple[str, str, str, _Value], ...] = (
    ("cache.hits", "{object}", "Objects found in memory", lambda x: x.cache_hits),
    ("cache.misses", "{object}", "Objects read from the store", lambda x: x.cache_misses),
    ("compaction.objects", "{object}", "Compacted objects", lambda x: x.compacted_objects),
    ("compaction.records", "{record}", "Compacted records", lambda x: x.compacted_records),
    ("compaction.segments", "{segment}", "Segments written", lambda x: x.segments_written),
    ("compaction.bytes", "By", "Bytes of segments written", lambda x: x.segment_bytes),
    ("compaction.failures", "{run}", "Runs not compacted", lambda x: x.compaction_failures),
    ("deleted", "{object}", "Objects deleted", lambda x: x.objects_deleted),
)


class BrokerMeters:
    """The counters that a server adds to."""

    def __init__(self, meters: MeterProvider) -> None:
        meter = meters.get_meter("changefeed")
        self._duration = meter.create_histogram(
            "changefeed.broker.append.duration", "s", "From a request to append to its answer"
        )
        self._records = meter.create_counter(
            "changefeed.broker.records", "{record}", "Records appended"
        )
        self._bytes = meter.create_counter("changefeed.broker.bytes", "By", "Bytes appended")
        self._refusals = meter.create_counter(
            "changefeed.broker.refusals", "{batch}", "Batches not appended, by reason"
        )
        self._read = meter.create_counter(
            "changefeed.broker.read.records", "{record}", "Records sent to readers"
        )

    def appended(
        self,
        collection: str,
        batches: Sequence[Batch],
        answers: Sequence[Answer],
        seconds: float,
    ) -> None:
        where = {"collection": collection}
        refused: Counter[str] = Counter()
        records = size = 0
        for batch, answer in zip(batches, answers, strict=True):
            if not isinstance(answer, Appended):
                refused[answer.reason] += 1
            elif not answer.duplicate:
                records += batch.count
                size += sum(map(len, batch.columns))
        self._duration.record(seconds, where)
        self._records.add(records, where)
        self._bytes.add(size, where)
        for reason, count in refused.items():
            self._refusals.add(count, {**where, "reason": reason})

    def read(self, collection: str, result: ReadResult) -> None:
        self._read.add(sum(x.count for x in result.blocks), {"collection": collection})


class CoreGauges:
    """What the core says of itself. Metrics are read in a thread of their own, where the core
    must not be asked: so ``show`` is called on the loop now and then.
    """

    def __init__(self, meters: MeterProvider) -> None:
        self._status: CoreStatus | None = None
        meter = meters.get_meter("changefeed")
        self._eras = meter.create_counter(
            "changefeed.broker.era.changes", "{era}", "Eras that began while it ran"
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
