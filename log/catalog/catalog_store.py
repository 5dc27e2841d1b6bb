"""The catalog of a cluster in its store: reading it when it has changed, and changing it.

It is one object, and is replaced only by who has read what it replaces. To ask whether it has
changed costs one cheap request.
"""

import uuid
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import (
    REMEMBERED_CHANGES,
    Catalog,
    Cluster,
    Collection,
    decode_catalog,
    encode_catalog,
    first_catalog,
    require_format,
)
from changefeed.log.catalog.collection_objects import CollectionObjects
from changefeed.log.catalog.names import CATALOG, CLUSTER, COLLECTIONS, PROBE
from changefeed.log.catalog.transitions import (
    new_collection,
    with_merge,
    with_retention,
    with_revisions,
    with_split,
)
from changefeed.log.decoding import Undecodable, from_json
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.log.stores.store import MISSING, ObjectStore
from changefeed.runtime.calls import gather_or_cancel
from changefeed.runtime.clock import elapsed_time, wall_clock_us
from changefeed.runtime.errors import StoreError, StoreRefused

_AT_ONCE = 16


async def open_cluster(store: ObjectStore, *, create: bool = True) -> Cluster:
    """Read what cluster lies in a store, and create it where there is none.

    Raise ``FeedRefused`` for what is none, or of a format that is not known, and
    ``StoreRefused`` for a store that cannot hold a cluster.
    """
    data = await store.get(CLUSTER)
    if data is None and create:
        await _require_replace(store)
        new = Cluster(identity=uuid.uuid4().hex)
        await store.create(CLUSTER, msgspec.json.encode(new))
        data = await store.get(CLUSTER)  # another broker may have been quicker
    if data is None:
        raise FeedRefused("there is no cluster here: start a broker over this place first")
    try:
        cluster = from_json(data, Cluster)
    except Undecodable as error:
        raise FeedRefused(
            f"{CLUSTER} is none of a cluster ({error}): give the place of a cluster, or an "
            f"empty one"
        ) from error
    require_format(cluster.format, "the cluster")
    return cluster


async def _require_replace(store: ObjectStore) -> None:
    """Raise ``StoreRefused`` where an object is replaced whatever its version is."""
    key = f"{PROBE}/{uuid.uuid4().hex}"
    first = await store.replace(key, b"1", MISSING)
    second = None if first is None else await store.replace(key, b"2", first)
    third = None if first is None else await store.replace(key, b"3", first)
    await store.delete([key])
    if second is None or third is not None:
        raise StoreRefused(
            "the store takes no conditional requests (If-Match): two brokers would overwrite "
            "each other's catalog. Use another store, or a newer version of this one"
        )


class CatalogStore:
    """The newest catalog that this process knows, and how to change it.

    Of collections it knows those that were asked for, and those that were ever changed.
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
        self._version = MISSING
        self._objects = CollectionObjects(store)

    async def refresh(self) -> Catalog:
        """Read the catalog, if it has changed; return the newest."""
        asked, known = self._clock(), self.newest
        found = await self._store.newer(CATALOG, self._version)
        if found is not None:
            catalog = decode_catalog(found.data, self._cluster.identity)
            if catalog.number <= known.number and catalog != replace(known, collections=()):
                raise FeedRefused(
                    f"the catalog is number {catalog.number} now, and was {known.number} "
                    f"before: the store was restored from an older copy. Start all brokers "
                    f"again"
                )
            await self._read_changed(catalog)
            self._take(catalog, found.version)
        self.confirmed_at = max(self.confirmed_at, asked)
        assert self.confirmed_at <= self._clock(), f"confirmed at {self.confirmed_at}, to come"
        return self.newest

    async def find(self, name: str) -> Collection:
        """Return a collection, and read it if it is not known yet.

        Raise ``FeedRefused`` where there is none.
        """
        if name not in self._objects.known:
            await self._objects.read(name)
        if self.newest.find(name) is None:  # or another task has read it, and is not done
            self._know(self.newest)
        return self._objects.known[name]

    async def find_all(self) -> None:
        """Read all collections that are not known yet: a listing, and a request for each."""
        listed = await self._store.list(COLLECTIONS)
        names = [x.key.removeprefix(COLLECTIONS) for x in listed]
        unknown = [x for x in names if x not in self._objects.known]
        for begin in range(0, len(unknown), _AT_ONCE):
            await gather_or_cancel(*map(self._objects.read, unknown[begin : begin + _AT_ONCE]))
        self._know(self.newest)

    # What people change. Brokers follow the catalog. To repeat it is harmless.

    async def create(self, name: str, *, parts: int = DEFAULT_PARTS) -> None:
        """Create a collection; its number of parts is for good. Refuse a name that is taken."""
        identity, now_us = uuid.uuid4().hex, wall_clock_us()
        catalog = await self.refresh()
        await self._objects.create(
            new_collection(catalog, name, parts=parts, identity=identity, now_us=now_us)
        )
        self._know(self.newest)

    async def split(self, name: str, range_id: RangeId | None = None) -> None:
        """Cut one open partition, or all of a collection, in halves; a new era follows."""
        await self.find(name)
        await self.change(lambda x: with_split(x, name, range_id))

    async def merge(self, name: str, range_id: RangeId | None = None) -> None:
        """Make one of an open partition and the next in its part, or pair by pair of all."""
        await self.find(name)
        await self.change(lambda x: with_merge(x, name, range_id))

    async def retain(self, name: str, *, seconds: float | None, bytes_: int | None) -> None:
        """Keep records for so many seconds, or so many bytes of them; ``None``: for ever."""
        await self.change_collection(
            name, lambda x: with_retention(x, seconds=seconds, bytes_=bytes_)
        )

    # What follows on what there is.

    async def change_collection(
        self, name: str, transition: Callable[[Collection], Collection]
    ) -> None:
        """Write what follows on a collection, and say so; see ``change``."""
        await self._objects.change(name, transition)
        self._know(self.newest)
        await self.announce()

    async def announce(self) -> None:
        """Say in the catalog what was changed of collections, so that others read it."""
        known = self._objects.known.values()
        if with_revisions(self.newest, known) is not self.newest:
            await self.change(lambda x: with_revisions(x, known))

    async def _read_changed(self, catalog: Catalog) -> None:
        for name, revision in catalog.revisions.items():
            known = self._objects.known.get(name)
            if known is None or known.revision < revision:
                await self._objects.read(name)

    async def change(self, transition: Callable[[Catalog], Catalog]) -> Catalog:
        """Write the catalog that follows, deciding again whenever somebody was quicker.

        ``transition`` returns what it was given where there is nothing to do, and may be
        called many times. Raise ``StoreUnavailable`` if the outcome is not known: to call
        again is safe.
        """
        now = await self.refresh()
        while (wanted := transition(now)) is not now:
            assert wanted.number == now.number + 1, f"{wanted.number} follows {now.number}"
            assert wanted.identity == now.identity, f"{now.identity} became {wanted.identity}"
            change = uuid.uuid4().hex[:12]
            changes = (*wanted.changes, change)[-REMEMBERED_CHANGES:]
            if await self._write(replace(wanted, changes=changes), self._version):
                break
            now = self.newest
        return self.newest

    async def _write(self, wanted: Catalog, version: str) -> bool:
        """Write a catalog in the place of a version; return whether that was done."""
        change = wanted.changes[-1]
        try:
            written = await self._store.replace(CATALOG, encode_catalog(wanted), version)
        except StoreError:
            if change not in (await self.refresh()).changes:
                raise
            return True
        if written is None:  # somebody was quicker; or a client of the store tried twice
            return change in (await self.refresh()).changes
        self._take(wanted, written)
        assert self.newest.number >= wanted.number, f"{wanted.number} is not taken in"
        return True

    def _take(self, catalog: Catalog, version: str) -> None:
        assert catalog.number >= self.newest.number or version != self._version, (
            f"{catalog.number} and {self.newest.number} have one version"
        )
        if catalog.number >= self.newest.number:
            self._version = version  # also of a store that was copied, which has new ones
        if catalog.number > self.newest.number:
            self._know(catalog)

    def _know(self, catalog: Catalog) -> None:
        """Take a catalog for the newest, with what is known of collections."""
        known = self._objects.known
        collections = tuple(known[x] for x in sorted(known))
        if (catalog.number, collections) != (self.newest.number, self.newest.collections):
            self.newest = replace(catalog, collections=collections)
            self.on_newer()
