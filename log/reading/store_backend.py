"""The store of a cluster among the feeds, for engines: ``file:///data/cluster#orders``.

Engines read it themselves (``stored_collection``). A host is refused: brokers have the newest
records in memory and let a reader wait for more, which a store does not.
"""

from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import FeedBackend, OpenOptions
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed
from changefeed.log.reading.store_address import FORM, parse_store_address
from changefeed.runtime.backends import Address


def _open(address: Address, _: OpenOptions) -> AbstractAsyncContextManager[Feed]:
    where = parse_store_address(address.scheme, address.place)
    raise FeedRefused(
        f"{address} is the store of a cluster, which only pipelines read themselves: give the "
        f"address of its brokers, as in brokers://127.0.0.1:7070/{where.collection}"
    )


BACKEND = FeedBackend(name="store", place=FORM, open=_open, modes=("all-versions",))
