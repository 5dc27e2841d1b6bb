"""SQLite among the stores: ``sqlite:PATH``, which opening creates."""

import os
from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.stores.backend import StoreBackend
from changefeed.stores.sqlite.store import open_store
from changefeed.stores.store import Store


def _open(at: Address, options: OpenOptions) -> AbstractAsyncContextManager[Store]:
    return open_store(
        at.place,
        create=options.create,
        must_exist=options.must_exist,
        keeps_changes=options.keeps_changes,
    )


BACKEND = StoreBackend(
    name="sqlite",
    place="PATH",
    open_store=_open,
    absolute=os.path.realpath,  # links in a circle are left as they are
)
