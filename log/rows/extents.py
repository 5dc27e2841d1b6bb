"""What there is of partitions: where their records begin and end, and their bytes."""

from typing import NamedTuple

from changefeed.log.catalog.catalog import Collection
from changefeed.log.catalog.ranges import Partition
from changefeed.log.format.flush import Ends


class Extent(NamedTuple):
    """Records ``start + 1`` to ``last`` are there. ``stored`` are the bytes of all there ever
    were, and ``gone`` those of what is deleted; the last flush was written at ``written_us``.
    """

    start: int
    last: int
    stored: int
    gone: int
    written_us: int

    @property
    def bytes(self) -> int:
        return max(self.stored - self.gone, 0)


def extent_of(collection: Collection, partition: Partition, ends: Ends) -> Extent:
    """Return it from the ends of the partition's row, as far as that has come."""
    end = ends.get((collection.name, partition.id))
    if end is None:
        return Extent(0, 0, 0, 0, 0)
    gone = collection.truncation_of(partition.id, partition.era, end.last, end.stored)
    return Extent(gone.start, end.last, end.stored, gone.bytes, end.written_us)
