"""Addresses of collections in the store of their cluster: ``STORE#COLLECTION``. Values only.

``file:///data/cluster#orders``, ``az://container/prefix#orders``: the place of the cluster
as ``--cluster=`` has it, and a collection. For engines, which read the store themselves;
hosts and producers go to brokers.
"""

from dataclasses import dataclass
from typing import Final

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.names import check_name

FORM: Final = (
    "//PLACE#COLLECTION, as in file:///data/cluster#orders or az://container/prefix#orders"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """``store`` is the place of a cluster, as ``stores.addresses.open_store`` takes it."""

    store: str
    collection: str


def parse_store_address(scheme: str, place: str) -> StoreAddress:
    """Raise ``FeedRefused``, with advice, for what names no store or no collection."""
    store, mark, collection = place.partition("#")
    if not store.startswith("//") or not mark:
        missing = "no collection" if store.startswith("//") else "no place of a cluster"
        raise FeedRefused(f"'{scheme}:{place}' names {missing}: write it as {scheme}:{FORM}")
    check_name(collection, "collection")
    return StoreAddress(store=f"{scheme}:{store}", collection=collection)
