"""What a broker counts, in OpenTelemetry's words.

changefeed.broker.append.duration    histogram, s: from a request to its answer
changefeed.broker.records            counter: appended, by collection
changefeed.broker.bytes              counter, By: appended, by collection
changefeed.broker.refusals           counter: batches not appended, by reason
changefeed.broker.read.records       counter: records sent to readers, by collection
changefeed.broker.flush.size         histogram, By: of the objects that were written
changefeed.broker.flush.duration     histogram, s: of the store's own put
changefeed.broker.era                gauge: the era it writes in
changefeed.broker.era.changes        counter
changefeed.broker.producers          gauge: those that it knows
changefeed.broker.cache.hits/misses  counters: objects read from memory, and from the store
"""

from collections import Counter
from collections.abc import Sequence

from opentelemetry.metrics import MeterProvider

from changefeed.feeds.brokers.protocol import Answer, Appended, Batch, ReadResult


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
