"""Azure Blob Storage among the lease containers: ``blob://ACCOUNT/CONTAINER/PREFIX``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.stores.backend import StoreBackend
from changefeed.stores.blob.address import read_address
from changefeed.stores.blob.connection import BlobSettings, connect, create_container
from changefeed.stores.blob.diagnostics import check
from changefeed.stores.blob.store import BlobStore


@asynccontextmanager
async def _open(at: Address, options: OpenOptions) -> AsyncIterator[BlobStore]:
    address = read_address(at.scheme, at.place)
    async with connect(address, options) as client:
        if options.create:
            await create_container(client, address)
        store = BlobStore(client, address)
        await store.container()
        yield store


BACKEND = StoreBackend(
    name="blob",
    place="//ACCOUNT/CONTAINER/PREFIX",
    open_store=_open,
    check=check,
    settings=BlobSettings,
    apart=True,  # as the Event Hubs SDKs have them
)
