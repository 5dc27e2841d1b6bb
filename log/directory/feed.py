"""Reading an event log: a collection in a directory, read from its files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.directory.directory import COLLECTION, open_directory
from changefeed.log.errors import answers_of_feeds
from changefeed.log.protocol.routes import Routes
from changefeed.log.reading.collection_feed import CollectionFeed
from changefeed.log.reading.stored_collection import StoredCollection
from changefeed.log.stores.local_store import LocalStore


class EventLog(CollectionFeed):
    """A feed over the directory of an event log. Make it with ``open``."""

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path) -> AsyncIterator[Self]:
        """Read a log until the block is left; any number of processes may.

        Raise ``FeedRefused``, with advice, for what is no log or cannot be read.
        """
        source = await open_stored_log(Path(path))
        yield cls(source, await source.routes(), wait=0.0)


async def open_stored_log(home: Path) -> StoredCollection:
    """Raise ``FeedRefused``, with advice, for what is no log or cannot be read."""
    store, catalogs = await open_directory(home)
    return _StoredLog(home, store, catalogs)


class _StoredLog(StoredCollection):
    """Refuses another log at the place of the one that was opened."""

    def __init__(self, home: Path, store: LocalStore, catalogs: CatalogStore) -> None:
        super().__init__(store, catalogs, COLLECTION)
        self._home = home

    async def routes(self, *, at_least: int = 0) -> Routes:
        if await asyncio.to_thread(self._home.exists):
            with answers_of_feeds():
                there = await open_cluster(LocalStore(self._home), create=False)
            if there.identity != self.cluster:
                raise FeedRefused(
                    f"the event log at {self._home} was deleted and recreated while it was "
                    f"open: start again, after resetting the leases of this feed"
                )
        return await super().routes(at_least=at_least)
