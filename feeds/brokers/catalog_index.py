"""Looking things up in one collection of a catalog, which may have many thousand partitions.

A new catalog comes with each change, and most of what is asked concerns a few eras. So
an index is made for an era when something of it is asked for, not for all there ever were.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from changefeed.feeds.brokers.catalog import Catalog, Collection, Partition
from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import FeedRange, RangeId

_ERA = re.compile(r"e([0-9]{1,9})\.")


class _InEra:
    """Partitions of one era, by their ids, and by part in the order of their keys."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.by_id: Mapping[RangeId, Partition] = {x.id: x for x in partitions}
        self.by_part: dict[int, list[Partition]] = defaultdict(list)
        for partition in sorted(partitions, key=lambda x: x.low):
            self.by_part[partition.part].append(partition)


class CollectionIndex:
    """The partitions of a collection by their ids, and what follows which."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._eras: dict[int, _InEra] = {}

    @cached_property
    def open(self) -> tuple[Partition, ...]:
        return tuple(self.since(self.newest_era))

    @property
    def newest_era(self) -> int:
        """The era of its newest partitions; 0 if there are none."""
        partitions = self.collection.partitions
        return partitions[-1].era if partitions else 0

    def since(self, era: int) -> Sequence[Partition]:
        """Return the partitions of an era and later ones: catalogs have them in order."""
        partitions = self.collection.partitions
        return partitions[bisect_left(partitions, era, key=lambda x: x.era) :]

    def partition(self, wanted: RangeId) -> Partition:
        found = self._find(wanted)
        if found is None:
            raise RangeUnknown(wanted)
        return found

    def has(self, wanted: RangeId) -> bool:
        return self._find(wanted) is not None

    def parents(self, child: Partition) -> tuple[Partition, ...]:
        return self._sharing_keys(child, child.era - 1)

    def children(self, parent: Partition) -> tuple[Partition, ...]:
        return self._sharing_keys(parent, parent.era + 1)

    def in_era(self, era: int, of: Partition) -> tuple[Partition, ...]:
        """Return the partitions of an era that hold keys of another's partition."""
        return self._sharing_keys(of, era)

    def home(self, of: Partition, era: int) -> str:
        """Return the broker that has its keys in an era: reads of it are served there."""
        if of.era == era:
            return of.broker
        return next((x.broker for x in self.in_era(era, of)), "")

    def as_range(self, partition: Partition) -> FeedRange:
        """Bounds are those of the event log: a part and a virtual part, as texts that sort."""
        part = partition.part + 1
        return FeedRange(
            id=partition.id,
            low=f"p{part:02}.v{partition.low:03x}",
            high=f"p{part:02}.v{partition.high + 1:03x}",
            parents=tuple(x.id for x in self.parents(partition)),
            generation=(partition.era, 0),
        )

    def _find(self, wanted: RangeId) -> Partition | None:
        era = _ERA.match(wanted)
        return None if era is None else self._in(int(era[1])).by_id.get(wanted)

    def _in(self, era: int) -> _InEra:
        found = self._eras.get(era)
        if found is None:
            after = self.since(era)
            there = after[: bisect_left(after, era + 1, key=lambda x: x.era)]
            if not there:
                return _NONE
            found = self._eras[era] = _InEra(there)
        return found

    def _sharing_keys(self, of: Partition, era: int) -> tuple[Partition, ...]:
        there = self._in(era).by_part.get(of.part, [])
        first = bisect_left(there, of.low, key=lambda x: x.high)
        found = []
        for partition in there[first:]:
            if partition.low > of.high:
                break
            found.append(partition)
        return tuple(found)


_NONE = _InEra(())


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
