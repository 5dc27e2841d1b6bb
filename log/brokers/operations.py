"""What people change in a cluster: collections, their shape, how long records are kept.

Any process with the store may do it; brokers follow the catalog. Each may be repeated after
``StoreUnavailable``, which leaves open whether it is done.
"""

import uuid

from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import Collection
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.transitions import (
    new_collection,
    with_merge,
    with_retention,
    with_split,
)
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.runtime.clock import wall_clock_us


async def create_collection(
    catalogs: CatalogStore, name: str, *, parts: int = DEFAULT_PARTS
) -> Collection:
    """Create a collection; its number of parts is for good. Refuse a name that is taken."""
    identity, now_us = uuid.uuid4().hex, wall_clock_us()
    catalog = await catalogs.refresh()
    new = new_collection(catalog, name, parts=parts, identity=identity, now_us=now_us)
    await catalogs.create(new)
    return new


async def split(catalogs: CatalogStore, name: str, range_id: RangeId | None = None) -> None:
    """Cut one open partition, or all of a collection, in halves; a new era follows."""
    await catalogs.find(name)
    await catalogs.change(lambda x: with_split(x, name, range_id))


async def merge(catalogs: CatalogStore, name: str, range_id: RangeId | None = None) -> None:
    """Make one of an open partition and the next in its part, or pair by pair of all."""
    await catalogs.find(name)
    await catalogs.change(lambda x: with_merge(x, name, range_id))


async def retain(
    catalogs: CatalogStore, name: str, *, seconds: float | None, bytes_: int | None
) -> None:
    """Keep records for so many seconds, or so many bytes of them; ``None``: for ever."""
    await catalogs.change_collection(
        name, lambda x: with_retention(x, seconds=seconds, bytes_=bytes_)
    )
