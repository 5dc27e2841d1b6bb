"""SQLite among the stores: ``sqlite:PATH``, which opening creates."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.stores.backend import StoreBackend
from changefeed.stores.sqlite.file import SqliteFile, making
from changefeed.stores.sqlite.store import SqliteStore


@asynccontextmanager
async def _open(at: Address, options: OpenOptions) -> AsyncIterator[SqliteStore]:
    """Open the file, which is made where there is none; with ``create``, its directory, too."""
    if options.create and not options.must_exist:
        await asyncio.to_thread(_make_directory, Path(at.place).parent)
    file = SqliteFile(
        at.place, must_exist=options.must_exist, keeps_changes=options.keeps_changes
    )
    await file.open()
    try:
        yield SqliteStore(file)
    finally:
        await file.close()


def _make_directory(directory: Path) -> None:
    with making(directory):
        directory.mkdir(parents=True, exist_ok=True)


BACKEND = StoreBackend(
    name="sqlite",
    place="PATH",
    open_store=_open,
    absolute=os.path.realpath,  # links in a circle are left as they are
)
