"""Looking things up in one collection of a catalog, which may have many thousand partitions."""

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property

from changefeed.feeds.brokers.catalog import Catalog, Collection, Partition
from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import FeedRange, RangeId


class CollectionIndex:
    """The partitions of a collection by their ids, and what follows which."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    @cached_property
    def by_id(self) -> dict[RangeId, Partition]:
        return {x.id: x for x in self.collection.partitions}

    @cached_property
    def open(self) -> tuple[Partition, ...]:
        return self.collection.open_partitions()

    @cached_property
    def _by_part(self) -> dict[tuple[int, int], list[Partition]]:
        found: dict[tuple[int, int], list[Partition]] = defaultdict(list)
        for partition in self.collection.partitions:
            found[partition.era, partition.part].append(partition)
        for partitions in found.values():
            partitions.sort(key=lambda x: x.low)
        return dict(found)

    def partition(self, wanted: RangeId) -> Partition:
        found = self.by_id.get(wanted)
        if found is None:
            raise RangeUnknown(wanted)
        return found

    def parents(self, child: Partition) -> tuple[Partition, ...]:
        return self._sharing_keys(child, child.era - 1)

    def successors(self, parent: Partition) -> tuple[Partition, ...]:
        return self._sharing_keys(parent, parent.era + 1)

    def in_era(self, era: int, of: Partition) -> tuple[Partition, ...]:
        """Return the partitions of an era that hold keys of another's partition."""
        return self._sharing_keys(of, era)

    def _sharing_keys(self, of: Partition, era: int) -> tuple[Partition, ...]:
        there = self._by_part.get((era, of.part), [])
        first = bisect_left(there, of.low, key=lambda x: x.high)
        found = []
        for partition in there[first:]:
            if partition.low > of.high:
                break
            found.append(partition)
        return tuple(found)

    def as_range(self, partition: Partition) -> FeedRange:
        """Bounds are those of the event log: a part and a virtual part, as texts that sort."""
        part = partition.part + 1
        return FeedRange(
            id=partition.id,
            low=f"p{part:02}.v{partition.low:03x}",
            high=f"p{part:02}.v{partition.high + 1:03x}",
            parents=tuple(x.id for x in self.parents(partition)),
        )


class CatalogIndex:
    """Indexes of a catalog's collections, made when they are asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._collections: dict[str, CollectionIndex] = {}

    def collection(self, name: str) -> CollectionIndex:
        """Raise ``CollectionUnknown`` where there is none."""
        found = self._collections.get(name)
        if found is None:
            found = CollectionIndex(self.catalog.collection(name))
            self._collections[name] = found
        return found
