"""What clients are shown of a catalog. Pure."""

from changefeed.log.catalog.catalog import Catalog
from changefeed.log.catalog.ranges import eras_of
from changefeed.log.protocol.messages import BrokerInfo, Topology


def topology_of(catalog: Catalog, name: str) -> Topology:
    """Raise ``FeedRefused`` if the collection does not exist."""
    collection, era = catalog.collection(name), catalog.era
    return Topology(
        cluster=catalog.identity,
        collection=name,
        identity=collection.identity,
        parts=collection.parts,
        catalog=catalog.number,
        era=0 if era is None else era.number,
        ending=era is not None and era.state == "ending",
        eras=eras_of(catalog, collection),
        kept_era=collection.kept_era,
        brokers=tuple(
            BrokerInfo(name=x.broker, incarnation=x.incarnation, address=x.address)
            for x in (() if era is None else era.rows)
        ),
    )
