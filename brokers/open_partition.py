"""A partition that takes records: what is accepted, and what has gone into objects. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from changefeed.feeds.brokers.flush import NewSection, PartitionEnd
from changefeed.feeds.brokers.protocol import Batch
from changefeed.feeds.eventlog.block_format import joined
from changefeed.feeds.feed import RangeId


class Accepted(NamedTuple):
    """A batch that is to be written, and its first record's sequence."""

    first: int
    batch: Batch


class OpenPartition:
    """``accept`` runs ahead of ``section``: what is between waits for its object.

    ``end`` is that of the last section.
    """

    def __init__(self, collection: str, partition: RangeId) -> None:
        self.collection = collection
        self.partition = partition
        self.last = 0
        self.end = PartitionEnd(collection=collection, partition=partition)

    def accept(self, batch: Batch) -> Accepted:
        """Give a batch its place behind those before it."""
        accepted = Accepted(self.last + 1, batch)
        self.last += batch.count
        assert self.last >= accepted.first, f"{self.partition}: a batch without records"
        return accepted

    def section(self, accepted: Sequence[Accepted], now_us: int) -> NewSection:
        """Make what goes into an object of batches that follow each other."""
        assert accepted, f"{self.partition}: a section without records"
        columns = joined(x.batch.columns for x in accepted)
        count = sum(x.batch.count for x in accepted)
        before = self.end
        name = f"{self.collection} {self.partition}"
        assert count == len(columns.kinds), (
            f"{name}: {count} records, {len(columns.kinds)} kinds"
        )
        assert accepted[0].first == before.last + 1, (
            f"{name}: records from {accepted[0].first} on do not follow on {before.last}"
        )
        self.end = PartitionEnd(
            collection=self.collection,
            partition=self.partition,
            last=accepted[-1].first + accepted[-1].batch.count - 1,
            latest_us=_latest(columns.times, before),
            stored=before.stored + sum(map(len, columns)),
            written_us=now_us,
        )
        assert before.last + count == self.end.last <= self.last, (
            f"{name}: {count} records behind {before.last} end at {self.end.last}, and "
            f"{self.last} were accepted"
        )
        assert not before.last or self.end.latest_us >= before.latest_us, (
            f"{name}: the latest commit time falls from {before.latest_us}"
        )
        return NewSection(
            collection=self.collection,
            partition=self.partition,
            first=accepted[0].first,
            count=count,
            latest_us=self.end.latest_us,
            stored=self.end.stored,
            columns=columns,
        )


def _latest(times: bytes, before: PartitionEnd) -> int:
    latest = max(memoryview(times).cast("q"))
    return max(latest, before.latest_us) if before.last else latest
