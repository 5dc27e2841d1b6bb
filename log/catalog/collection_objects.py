"""The collections of a cluster, an object each: ``collections/<name>``. Frozen.

An object is as the catalog is: a checksum, a line feed, and JSON. To create a collection writes
nothing else, so a thousand of them are a thousand puts. It is changed as the catalog is, and
``revision`` counts that; the catalog says the revision of those that were changed, so that
all brokers read them again.
"""

from collections.abc import Callable

from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.catalog import Collection, decode_collection, encode_collection
from changefeed.log.catalog.names import COLLECTIONS, check_name, collection_key
from changefeed.log.errors import no_collection
from changefeed.log.stores.store import MISSING, ObjectStore, holds
from changefeed.runtime.errors import StoreError


class CollectionObjects:
    """Those that this process knows, by their names: what it was asked for."""

    def __init__(self, store: ObjectStore) -> None:
        self.known: dict[str, Collection] = {}
        self._versions: dict[str, str] = {}
        self._store = store

    async def read(self, name: str) -> Collection:
        """Return a collection as it is now; raise ``FeedRefused``."""
        key = collection_key(check_name(name, "collection"))
        found = await self._store.newer(key, self._versions.get(name, MISSING))
        if found is not None and found.version != MISSING:
            self._take(decode_collection(found.data, name), found.version)
        if name not in self.known:
            listed = await self._store.list(COLLECTIONS)
            raise no_collection(name, [x.key.removeprefix(COLLECTIONS) for x in listed])
        return self.known[name]

    async def create(self, new: Collection) -> None:
        """Create a collection; refuse a name that another has."""
        key, data = collection_key(new.name), encode_collection(new)
        try:
            await self._store.create(key, data)
            there = await self.read(new.name)
        except StoreError:  # whether it was created is not known
            if not await holds(self._store, key, data):
                raise
            there = await self.read(new.name)
        if there.identity != new.identity:
            raise FeedRefused(f"there is a collection {new.name!r} already")

    async def change(self, name: str, transition: Callable[[Collection], Collection]) -> None:
        """Write what follows on a collection, deciding again whenever somebody was quicker."""
        now = await self.read(name)
        while (changed := transition(now)) != now:
            wanted = replace(changed, revision=now.revision + 1)
            assert wanted.identity == now.identity, f"{name} became another collection"
            assert wanted.kept_era >= now.kept_era, f"{name} has records again: {wanted}"
            if await self._write(wanted):
                break
            now = self.known[name]

    async def _write(self, wanted: Collection) -> bool:
        """Write a collection in the place of the known one; return whether that was done."""
        key, version = collection_key(wanted.name), self._versions[wanted.name]
        try:
            written = await self._store.replace(key, encode_collection(wanted), version)
        except StoreError:
            if await self.read(wanted.name) != wanted:
                raise
            return True
        if written is None:  # somebody was quicker; or a client of the store tried twice
            return await self.read(wanted.name) == wanted
        self._take(wanted, written)
        return True

    def _take(self, found: Collection, version: str) -> None:
        known = self.known.get(found.name)
        if known is None or found.revision >= known.revision:
            self.known[found.name], self._versions[found.name] = found, version
