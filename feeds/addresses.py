"""Opening a feed by its address: ``eventlog:PATH``, ``cosmos://HOST/DATABASE/CONTAINER``,
``brokers://HOST:PORT/COLLECTION``.

The scheme names the backend, the rest is for that backend to read. Other packages add
theirs by the entry point ``changefeed.feeds``; see ``changefeed.feeds.backend``.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final

from changefeed.feeds.backend import FeedBackend, OpenOptions, prepared
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed
from changefeed.runtime.backends import BackendTable, BuiltIn
from changefeed.runtime.diagnostics import Diagnostic

STORES: Final = ("file", "s3", "s3a", "az", "azure", "gs")
"""Schemes of clusters' stores: engines read a collection there, without its brokers."""

_BROKERS = BuiltIn(target="changefeed.log.client.backend:BACKEND")
_COSMOS = BuiltIn(target="changefeed.feeds.cosmos.backend:BACKEND")

FEEDS = BackendTable(
    FeedBackend,
    what="a feed",
    group="changefeed.feeds",
    built_in={
        "eventlog": BuiltIn(target="changefeed.log.directory.backend:BACKEND"),
        "cosmos": _COSMOS,
        "cosmos+http": _COSMOS,
        "brokers": _BROKERS,
        "brokers+tls": _BROKERS,
        **{
            x: BuiltIn(target="changefeed.log.reading.store_backend:BACKEND", listed=False)
            for x in STORES
        },
        "memory": BuiltIn(target="changefeed.feeds.memory:BACKEND", listed=False),
    },
    refuse=FeedRefused,
)


def open_feed(
    address: str, options: OpenOptions | None = None
) -> AbstractAsyncContextManager[Feed]:
    """Return the feed at an address, open as long as the block lasts.

    Without ``options``, secrets and the settings of backends are taken from the
    environment. Raise ``FeedRefused``, with advice, for an address of no known kind, at
    once; and for one that leads to no feed, on entering the block.
    """
    backend, where, own = prepared(FEEDS, address, options)
    return backend.open(where, own)


async def check_feed(
    address: str, options: OpenOptions | None = None
) -> AsyncIterator[Diagnostic]:
    """Yield what the backend of a feed has to say about the place that it is in."""
    backend, where, own = prepared(FEEDS, address, options)
    if backend.check is not None:
        async for found in backend.check(where, own):
            yield found
