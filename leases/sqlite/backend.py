"""SQLite among the lease containers: ``sqlite:PATH``, which opening creates."""

import asyncio
from pathlib import Path

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.sqlite.container import SqliteCheckpoints, SqliteLeases, SqliteOwnership
from changefeed.runtime.backends import Address


async def _exists(address: Address, _: OpenOptions) -> bool:
    return await asyncio.to_thread(Path(address.place).exists)


BACKEND = LeaseBackend(
    name="sqlite",
    place="PATH",
    open_container=lambda address, _: SqliteLeases(address.place),
    open_ownership=lambda address, _: SqliteOwnership(address.place),
    open_checkpoints=lambda address, _: SqliteCheckpoints(address.place),
    exists=_exists,
    absolute=lambda place: str(Path(place).resolve()),
)
