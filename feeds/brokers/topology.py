"""What clients are shown of a catalog. Pure."""

from changefeed.feeds.brokers.catalog_index import CatalogIndex
from changefeed.feeds.brokers.protocol import BrokerInfo, PartitionInfo, Topology


def topology_of(index: CatalogIndex, name: str, *, since_era: int = 0) -> Topology:
    """Show the partitions of this era and of those after it."""
    found = index.collection(name)
    collection, era = found.collection, index.catalog.era
    return Topology(
        cluster=index.catalog.identity,
        collection=name,
        identity=collection.identity,
        parts=collection.parts,
        catalog=index.catalog.number,
        era=0 if era is None else era.number,
        ending=era is not None and era.state == "ending",
        partitions=tuple(
            PartitionInfo(
                range=found.as_range(x),
                era=x.era,
                part=x.part,
                low=x.low,
                high=x.high,
                broker=x.broker,
                home=x.home,
                start=x.start,
                last=x.last,
                moving_to=x.moving_to,
            )
            for x in found.since(since_era)
        ),
        brokers=tuple(
            BrokerInfo(name=x.broker, incarnation=x.incarnation, address=x.address)
            for x in (() if era is None else era.rows)
        ),
    )
