"""SQLite among the stores: ``sqlite:PATH``, which opening creates."""

import os
from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.sqlite.store import open_store
from changefeed.leases.store import Store
from changefeed.runtime.backends import Address


def _open(at: Address, options: OpenOptions) -> AbstractAsyncContextManager[Store]:
    return open_store(
        at.place,
        create=options.create,
        must_exist=options.must_exist,
        keeps_changes=options.keeps_changes,
    )


BACKEND = LeaseBackend(
    name="sqlite",
    place="PATH",
    open_store=_open,
    absolute=os.path.realpath,  # links in a circle are left as they are
)
