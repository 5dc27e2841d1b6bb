"""What there is of partitions: where their records begin and end, and their bytes."""

from typing import NamedTuple

from changefeed.log.catalog.catalog import Catalog, Collection
from changefeed.log.catalog.ranges import Partition
from changefeed.log.format.flush import Ends
from changefeed.log.format.pack import Key


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


def starts_in(catalog: Catalog, era: int, ends: Ends) -> dict[Key, int]:
    """Return up to where the partitions of a row of an era are gone, of those that are."""
    by_name = catalog.by_name()
    starts = {
        (name, partition): by_name[name].truncation_of(partition, era, x.last, x.stored).start
        for (name, partition), x in ends.items()
        if name in by_name  # one that is not known here was never changed
    }
    return {key: start for key, start in starts.items() if start}
