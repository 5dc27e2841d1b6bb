"""A partition that takes records: what is accepted, and what has gone into objects. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from changefeed.brokers.producers import Duplicate, Gap, New, ProducerTable, Taken
from changefeed.feeds.brokers.flush import (
    LastBatch,
    NewSection,
    PartitionEnd,
    Reached,
    StoredBatch,
    with_batch,
)
from changefeed.feeds.brokers.protocol import Batch
from changefeed.feeds.eventlog.block_format import joined
from changefeed.feeds.feed import RangeId


class Accepted(NamedTuple):
    """A batch that is to be written, its first record's sequence, its columns' CRC-32."""

    first: int
    batch: Batch
    check: int


class OpenPartition:
    """``accept`` runs ahead of ``section``: what is between waits for its object.

    ``now`` is of a clock that never goes back, in seconds; ``now_us`` is the wall clock.
    """

    def __init__(self, collection: str, partition: RangeId) -> None:
        self.collection = collection
        self.partition = partition
        self.last = 0
        self._producers = ProducerTable()
        self._reached: dict[str, Reached] = {}
        self._last_batches: dict[str, tuple[LastBatch, ...]] = {}
        self._heard: dict[str, float] = {}
        self._end = PartitionEnd(collection=collection, partition=partition)

    def accept(self, batch: Batch, now: float) -> Accepted | Duplicate | Gap | Taken:
        """Give a new batch its place; say what it is instead otherwise."""
        self._heard[batch.producer] = now
        verdict = self._producers.check(batch)
        if not isinstance(verdict, New):
            return verdict
        check = self._producers.add(batch, self.last + 1)
        accepted = Accepted(self.last + 1, batch, check)
        self.last += batch.count
        assert self.last >= accepted.first, f"{self.partition}: a batch without records"
        return accepted

    def section(self, accepted: Sequence[Accepted], now_us: int) -> NewSection:
        """Make what goes into an object of batches that follow each other."""
        assert accepted, f"{self.partition}: a section without records"
        columns = joined(x.batch.columns for x in accepted)
        count = sum(x.batch.count for x in accepted)
        before = self._end
        name = f"{self.collection} {self.partition}"
        assert count == len(columns.kinds), (
            f"{name}: {count} records, {len(columns.kinds)} kinds"
        )
        assert accepted[0].first == before.last + 1, (
            f"{name}: records from {accepted[0].first} on do not follow on {before.last}"
        )
        self._end = PartitionEnd(
            collection=self.collection,
            partition=self.partition,
            last=accepted[-1].first + accepted[-1].batch.count - 1,
            latest_us=_latest(columns.times, before),
            stored=before.stored + sum(map(len, columns)),
            written_us=now_us,
        )
        assert before.last + count == self._end.last <= self.last, (
            f"{name}: {count} records behind {before.last} end at {self._end.last}, and "
            f"{self.last} were accepted"
        )
        assert not before.last or self._end.latest_us >= before.latest_us, (
            f"{name}: the latest commit time falls from {before.latest_us}"
        )
        for x in accepted:
            self._note(x, now_us)
        return NewSection(
            collection=self.collection,
            partition=self.partition,
            first=accepted[0].first,
            count=count,
            latest_us=self._end.latest_us,
            stored=self._end.stored,
            batches=tuple(
                StoredBatch(x.batch.numbering, x.batch.sequence, x.batch.count)
                for x in accepted
            ),
            columns=columns,
            checks=tuple(x.check for x in accepted),
        )

    def _note(self, accepted: Accepted, now_us: int) -> None:
        """Note what its producer has reached with a batch, and forget earlier generations."""
        _, batch, check = accepted
        name, before = batch.producer, self._reached.get(batch.producer)
        is_first = before is None or before.producer != batch.numbering
        known = () if is_first else self._last_batches[name]
        through = batch.sequence + batch.count - 1
        assert before is None or is_first or through > before.sequence, (
            f"{self.partition}: {name} goes back from {before} to {through}"
        )
        self._reached[name] = Reached(batch.numbering, through, now_us)
        self._last_batches[name] = with_batch(known, batch.sequence, batch.count, check)

    @property
    def written(self) -> int:
        """The last sequence of the last section."""
        return self._end.last

    def end(self) -> PartitionEnd:
        """Return its end as of the last section, for a table."""
        assert self._reached.keys() == self._last_batches.keys(), (
            f"{self.partition}: the last batches are those of the producers"
        )
        return replace(
            self._end,
            producers=tuple(self._reached.values()),
            last_batches=tuple(self._last_batches.values()),
        )

    def forget(self, before: float) -> None:
        """Forget producers that have been silent since a time, and have nothing waiting."""
        for name in [x for x, heard in self._heard.items() if heard < before]:
            known = self._reached.get(name)
            if self._producers.reached(name) == (known and known[:2]):
                self._reached.pop(name, None)
                self._last_batches.pop(name, None)
                self._producers.forget(name)
                del self._heard[name]

    @property
    def producers(self) -> int:
        return len(self._producers)


def _latest(times: bytes, before: PartitionEnd) -> int:
    latest = max(memoryview(times).cast("q"))
    return max(latest, before.latest_us) if before.last else latest
