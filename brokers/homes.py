"""Homes of closed partitions: who serves reads of them from its cache.

A closed partition's home is the broker that writes its keys now, so all eras together are as
evenly divided as the newest. The master names new homes, a few at a time; a broker that
is named reads the partition into its cache first, and then takes it over. Reads
never wait for that: any broker serves any partition.

People may choose another home for a range. It stays there until they take that back; while
the chosen broker is away the range is where it would be otherwise.
"""

import logging
from collections.abc import Collection as AbstractCollection

from msgspec import UNSET
from msgspec.structs import replace

from changefeed.brokers.core_settings import CoreSettings
from changefeed.feeds.brokers.catalog import Catalog, Partition
from changefeed.feeds.brokers.catalog_index import CatalogIndex
from changefeed.feeds.brokers.catalog_store import CatalogStore
from changefeed.feeds.brokers.errors import ClusterRefused
from changefeed.feeds.brokers.partition_reader import PartitionReader
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.row_readers import RowReaders
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId

_log = logging.getLogger(__name__)


def with_homes_planned(index: CatalogIndex, at_once: int) -> Catalog:
    """Name new homes for closed partitions, so that so many are moving at most.

    One without records moves at once. Nothing is done while an era is ending.
    """
    catalog = index.catalog
    era = catalog.era
    if era is None or era.state != "open":
        return catalog
    living = {x.broker for x in era.rows}
    moving = sum(
        p.moving_to in living for c in catalog.collections for p in c.partitions if p.moving_to
    )
    collections = []
    for collection in catalog.collections:
        found = index.collection(collection.name)
        partitions = []
        for partition in collection.partitions:
            wanted = collection.chosen_homes.get(partition.id, "")
            if wanted not in living:
                wanted = _wanted(found.in_era(era.number, partition), partition)
            moved = _planned(partition, wanted, may_start=moving < at_once)
            moving += moved.moving_to != "" and partition.moving_to not in living
            partitions.append(moved)
        collections.append(replace(collection, partitions=tuple(partitions)))
    if tuple(collections) == catalog.collections:
        return catalog
    return replace(catalog, number=catalog.number + 1, collections=tuple(collections))


def _wanted(now: tuple[Partition, ...], partition: Partition) -> str:
    return now[0].broker if now else partition.home


def _planned(partition: Partition, wanted: str, *, may_start: bool) -> Partition:
    if partition.is_open or (partition.home, partition.moving_to) == (wanted, ""):
        return partition
    if partition.home == wanted or partition.last == partition.start:
        return replace(partition, home=wanted, moving_to="")
    if partition.moving_to == wanted or not (may_start or partition.moving_to):
        return partition
    return replace(partition, moving_to=wanted)


def with_homes_chosen(
    catalog: Catalog, name: str, range_id: RangeId | None, broker: str | None
) -> Catalog:
    """Choose the home of a closed partition, or of all; ``None``: as the master has it.

    Refuse an open partition, which its writer serves, and a broker that is not there.
    """
    collection = catalog.collection(name)
    chosen = [collection.partition(range_id)] if range_id else collection.partitions
    if range_id is not None and chosen[0].is_open:
        raise ClusterRefused(
            f"range {range_id!r} is open: the broker that writes it serves it, and brokers "
            f"share the open ranges evenly. Ranges that have ended can be moved"
        )
    living = {x.broker for x in catalog.era.rows} if catalog.era is not None else set()
    if broker is not None and broker not in living:
        raise ClusterRefused(
            f"there is no broker {broker!r} in era {catalog.era.number if catalog.era else 0}: "
            f"give one of {', '.join(sorted(living))}"
        )
    ids = {x.id for x in chosen}
    homes = {x: y for x, y in collection.chosen_homes.items() if x not in ids}
    if broker is not None:
        homes |= {x.id: broker for x in chosen if not x.is_open}
    if homes == collection.chosen_homes:
        return catalog
    changed = replace(collection, homes=homes or UNSET)
    collections = tuple(changed if x is collection else x for x in catalog.collections)
    return replace(catalog, number=catalog.number + 1, collections=collections)


def with_homes_taken(
    catalog: Catalog, broker: str, taken: AbstractCollection[tuple[str, RangeId]]
) -> Catalog:
    """Make a broker the home of partitions that are moving to it."""
    collections = tuple(
        replace(
            c,
            partitions=tuple(
                replace(p, home=broker, moving_to="")
                if p.moving_to == broker and (c.name, p.id) in taken
                else p
                for p in c.partitions
            ),
        )
        for c in catalog.collections
    )
    if collections == catalog.collections:
        return catalog
    return replace(catalog, number=catalog.number + 1, collections=collections)


class HomeTaker:
    """Takes over what is moving to this broker, its cache warmed first."""

    def __init__(
        self,
        name: str,
        catalogs: CatalogStore,
        readers: RowReaders[RowReader],
        partitions: PartitionReader,
        settings: CoreSettings,
    ) -> None:
        self._name = name
        self._catalogs = catalogs
        self._readers = readers
        self._partitions = partitions
        self._settings = settings
        self._seen = 0

    async def step(self) -> None:
        """Warm the cache with what is moving here, and take it over."""
        catalog = self._catalogs.newest
        if catalog.number == self._seen:
            return
        coming = [
            (c.name, p)
            for c in catalog.collections
            for p in c.partitions
            if p.moving_to == self._name
        ]
        for collection, partition in coming:
            assert not partition.is_open, f"{partition.id} is at home where it is written"
            row = self._readers.row(catalog, partition.era, partition.broker)
            most = self._settings.warm_bytes
            try:
                await self._partitions.read(row, collection, partition, partition.start, most)
            except RangeDamaged as error:  # any broker can say so; the others still move
                _log.warning(
                    "broker.failed", extra={"doing": "warm a home", "error": str(error)}
                )
        if coming:
            taken = {(name, x.id) for name, x in coming}
            await self._catalogs.change(lambda x: with_homes_taken(x, self._name, taken))
        self._seen = catalog.number
