"""From an address to a store in Azure Blob Storage: the container found or created."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.stores.blob.address import BlobAccess, read_address
from changefeed.stores.blob.connection import connect, create_container
from changefeed.stores.blob.errors import translate_errors
from changefeed.stores.blob.store import BlobStore


@asynccontextmanager
async def open_store(
    scheme: str, place: str, access: BlobAccess | None = None, *, create: bool = False
) -> AsyncIterator[BlobStore]:
    address = read_address(scheme, place)
    async with connect(address, access) as client:
        if create:
            await create_container(client, address)
        with translate_errors(str(address)):
            await client.get_container_properties()
        yield BlobStore(client, address)
