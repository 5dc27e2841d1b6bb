"""Cosmos DB among the stores: ``cosmos://HOST/DATABASE/CONTAINER?prefix=…``."""

from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.stores.backend import StoreBackend
from changefeed.stores.cosmos import opening
from changefeed.stores.store import Store


def _store(at: Address, options: OpenOptions) -> AbstractAsyncContextManager[Store]:
    return opening.open_store(at.scheme, at.place, options.cosmos, create=options.create)


BACKEND = StoreBackend(
    name="cosmos",
    place="//HOST/DATABASE/CONTAINER",
    open_store=_store,
    locating=("prefix", "processor", "feed"),
)
