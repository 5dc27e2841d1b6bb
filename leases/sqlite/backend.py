"""SQLite among the stores: ``sqlite:PATH``, which opening creates."""

import asyncio
import os
from pathlib import Path

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.sqlite.store import open_store
from changefeed.runtime.backends import Address


async def _exists(address: Address, _: OpenOptions) -> bool:
    try:
        return await asyncio.to_thread(Path(address.place).exists)
    except OSError as error:  # a path that no file can have, or a directory that is closed
        raise ContainerRefused(f"{address.place}: {error.strerror}") from error


BACKEND = LeaseBackend(
    name="sqlite",
    place="PATH",
    open_store=lambda address, _: open_store(address.place),
    exists=_exists,
    absolute=os.path.realpath,  # links in a circle are left as they are
)
