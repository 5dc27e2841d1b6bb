"""Reading an event log: a collection in a directory, read from its files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from changefeed.log.directory.directory import COLLECTION, open_directory
from changefeed.log.reading.collection_feed import CollectionFeed
from changefeed.log.reading.stored_collection import StoredCollection


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
    return StoredCollection(*await open_directory(home), COLLECTION)
