"""A partition that takes records: what is accepted, and what has gone into objects. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from changefeed.feeds.feed import RangeId
from changefeed.log.format.block_format import joined
from changefeed.log.format.flush import PartitionEnd, end_with, records_behind
from changefeed.log.format.pack import Records
from changefeed.log.protocol.messages import Batch


class SequencedBatch(NamedTuple):
    """A batch that is to be written, and its first record's sequence."""

    first: int
    batch: Batch


class OpenPartition:
    """``accept`` runs ahead of ``records``: what is between waits for its object.

    ``end`` is that of the last records.
    """

    def __init__(self, collection: str, partition: RangeId) -> None:
        self.collection = collection
        self.partition = partition
        self.last = 0
        self.end = PartitionEnd(collection=collection, partition=partition)

    def accept(self, batch: Batch) -> SequencedBatch:
        """Give a batch its place behind those before it."""
        accepted = SequencedBatch(self.last + 1, batch)
        self.last += batch.count
        assert self.last >= accepted.first, f"{self.partition}: a batch without records"
        return accepted

    def records(self, accepted: Sequence[SequencedBatch], now_us: int) -> Records:
        """Make what goes into an object of batches that follow each other."""
        assert accepted, f"{self.partition}: an object without records of it"
        made = records_behind(self.end, joined(x.batch.columns for x in accepted))
        name = f"{self.collection} {self.partition}"
        assert made.count == sum(x.batch.count for x in accepted), (
            f"{name}: {made.count} kinds of other records"
        )
        assert accepted[0].first == made.first, (
            f"{name}: records from {accepted[0].first} on do not follow on {self.end.last}"
        )
        assert made.last <= self.last, f"{name}: {made.last} of {self.last} were accepted"
        self.end = end_with(made, now_us)
        return made
