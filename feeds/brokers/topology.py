"""What clients are shown of a catalog. Pure."""

from msgspec.structs import replace

from changefeed.feeds.brokers.catalog import Partition
from changefeed.feeds.brokers.catalog_index import CatalogIndex, CollectionIndex
from changefeed.feeds.brokers.protocol import BrokerInfo, PartitionInfo, Topology


def topology_of(index: CatalogIndex, name: str, *, since_era: int = 0) -> Topology:
    """Show the partitions of this era and of those after it."""
    found = index.collection(name)
    shown = tuple(partition_info(found, x) for x in found.since(since_era))
    return replace(without_partitions(index, name), partitions=shown)


def without_partitions(index: CatalogIndex, name: str) -> Topology:
    """Show all but the partitions, which may be many."""
    collection, era = index.collection(name).collection, index.catalog.era
    return Topology(
        cluster=index.catalog.identity,
        collection=name,
        identity=collection.identity,
        parts=collection.parts,
        catalog=index.catalog.number,
        era=0 if era is None else era.number,
        ending=era is not None and era.state == "ending",
        partitions=(),
        brokers=tuple(
            BrokerInfo(name=x.broker, incarnation=x.incarnation, address=x.address)
            for x in (() if era is None else era.rows)
        ),
    )


def partition_info(found: CollectionIndex, partition: Partition) -> PartitionInfo:
    return PartitionInfo(
        range=found.as_range(partition),
        era=partition.era,
        part=partition.part,
        low=partition.low,
        high=partition.high,
        broker=partition.broker,
        start=partition.start,
        last=partition.last,
    )
