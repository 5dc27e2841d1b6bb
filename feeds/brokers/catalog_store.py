"""The catalog of a cluster in its store: reading the newest, creating the next.

Catalogs are numbered without gaps, so the next is asked for by its number: a miss says that
there is none yet. That costs one cheap request, and is never late as listings may be.
"""

import uuid
from collections.abc import Callable

import msgspec

from changefeed.feeds.brokers.catalog import (
    Catalog,
    Cluster,
    decode_catalog,
    encode_catalog,
    first_catalog,
    require_format,
)
from changefeed.feeds.brokers.decoding import Undecodable, from_json
from changefeed.feeds.brokers.errors import ClusterRefused
from changefeed.feeds.brokers.names import CATALOGS, CLUSTER, catalog_key, number_of
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.runtime.clock import elapsed_time
from changefeed.runtime.errors import StoreError


async def open_cluster(store: ObjectStore, *, create: bool = True) -> Cluster:
    """Read what cluster lies in a store, and create it where there is none.

    Raise ``ClusterRefused`` for what is none, or of a format that is not known.
    """
    data = await store.get(CLUSTER)
    if data is None and create:
        new = Cluster(identity=uuid.uuid4().hex)
        await store.create(CLUSTER, msgspec.json.encode(new))
        data = await store.get(CLUSTER)  # another broker may have been quicker
    if data is None:
        raise ClusterRefused("there is no cluster here: start a broker over this place first")
    try:
        cluster = from_json(data, Cluster)
    except Undecodable as error:
        raise ClusterRefused(
            f"{CLUSTER} is none of a cluster ({error}): give the place of a cluster, or an "
            f"empty one"
        ) from error
    require_format(cluster.format, "the cluster")
    return cluster


class CatalogStore:
    """The newest catalog that this process knows, and how to change it.

    Many tasks may use it: whatever they do is decided by the store. ``confirmed_at`` is when,
    by ``clock``, the store was last known to have no newer one. ``on_newer`` is called when
    there is one.
    """

    def __init__(
        self, store: ObjectStore, cluster: Cluster, clock: Callable[[], float] = elapsed_time
    ) -> None:
        self.confirmed_at = clock()
        self.on_newer: Callable[[], None] = lambda: None
        self._store = store
        self._cluster = cluster
        self._clock = clock
        self.newest = first_catalog(cluster)

    async def load(self) -> Catalog:
        """Find the newest catalog from a listing, then go on by numbers."""
        after = catalog_key(self.newest.number)
        listed = await self._store.list(CATALOGS, after)
        numbers = [x for x in (number_of(y.key) for y in listed) if x is not None]
        if numbers:
            await self._read(max(numbers))
        return await self.refresh()

    async def refresh(self) -> Catalog:
        """Read on until there is no next number; return the newest."""
        asked = self._clock()
        while await self._read(self.newest.number + 1):
            asked = self._clock()
        self.confirmed_at = max(self.confirmed_at, asked)
        assert self.confirmed_at <= self._clock(), f"confirmed at {self.confirmed_at}, to come"
        return self.newest

    async def change(self, transition: Callable[[Catalog], Catalog]) -> Catalog:
        """Create the catalog that follows, deciding again whenever somebody was quicker.

        ``transition`` returns what it was given where there is nothing to do, and may be
        called many times. Raise ``StoreUnavailable`` if the outcome is not known: to call
        again is safe.
        """
        while True:
            now = await self.refresh()
            wanted = transition(now)
            if wanted is now:
                return now
            assert wanted.number == now.number + 1, f"{wanted.number} follows {now.number}"
            assert wanted.identity == now.identity, f"{now.identity} became {wanted.identity}"
            data = encode_catalog(wanted)
            key = catalog_key(wanted.number)
            try:
                created = await self._store.create(key, data) or (
                    await self._store.get(key) == data  # a client of the store tried twice
                )
            except StoreError:
                if await self._store.get(key) != data:
                    raise
                created = True
            if created:
                self._take(wanted)
                assert self.newest.number >= wanted.number, f"{wanted.number} is not taken in"
                return self.newest

    async def _read(self, number: int) -> bool:
        data = await self._store.get(catalog_key(number))
        if data is None:
            return False
        self._take(decode_catalog(data, number, self._cluster.identity))
        return True

    def _take(self, catalog: Catalog) -> None:
        if catalog.number > self.newest.number:
            self.newest = catalog
            self.on_newer()
