"""From an address to leases in Azure Blob Storage: the container found or created."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.storage.blob.aio import ContainerClient

from changefeed.leases.blob.address import BlobAccess, BlobAddress, read_address
from changefeed.leases.blob.connection import connect, create_container
from changefeed.leases.blob.errors import translate_errors
from changefeed.leases.blob.metadata import Kind
from changefeed.leases.blob.ownership import BlobOwnership
from changefeed.leases.blob.tables import BlobFeedText, BlobTable
from changefeed.leases.conditional import ConditionalCheckpoints
from changefeed.leases.lease import Checkpoint, Lease, Member
from changefeed.leases.separate_stores import SeparateStores

OWNERSHIP = Kind(folder="ownership", form=Lease)
CHECKPOINTS = Kind(folder="checkpoint", form=Checkpoint)
MEMBERS = Kind(folder="owner-hosts", form=Member)
_BEGINNING = "owner"
"""What the folders of leases and hosts begin with, so that one listing shows both. Not with
``ownership``: some of the Event Hubs SDKs read whatever begins so.
"""


@asynccontextmanager
async def open_leases(
    scheme: str, place: str, access: BlobAccess | None = None, *, create: bool = False
) -> AsyncIterator[SeparateStores]:
    """Ownership and checkpoints in blobs of their own, as the Event Hubs SDKs have them."""
    async with _opened(scheme, place, access, create=create) as (client, address):
        yield SeparateStores(_ownership(client, address), _checkpoints(client, address))


@asynccontextmanager
async def open_ownership(
    scheme: str, place: str, access: BlobAccess | None = None, *, create: bool = False
) -> AsyncIterator[BlobOwnership]:
    """Ownership alone, under ``ownership``; hosts under ``owner-hosts``."""
    async with _opened(scheme, place, access, create=create) as (client, address):
        yield _ownership(client, address)


@asynccontextmanager
async def open_checkpoints(
    scheme: str, place: str, access: BlobAccess | None = None, *, create: bool = False
) -> AsyncIterator[ConditionalCheckpoints]:
    """Checkpoints alone, under ``checkpoint``."""
    async with _opened(scheme, place, access, create=create) as (client, address):
        yield _checkpoints(client, address)


@asynccontextmanager
async def _opened(
    scheme: str, place: str, access: BlobAccess | None, *, create: bool
) -> AsyncIterator[tuple[ContainerClient, BlobAddress]]:
    address = read_address(scheme, place)
    async with connect(address, access) as client:
        if create:
            await create_container(client, address)
        with translate_errors(str(address)):
            await client.get_container_properties()
        yield client, address


def _ownership(client: ContainerClient, address: BlobAddress) -> BlobOwnership:
    return BlobOwnership(
        BlobTable(client, address, OWNERSHIP),
        BlobTable(client, address, MEMBERS),
        BlobFeedText(client, address),
        beginning=f"{address.prefix}/{_BEGINNING}",
    )


def _checkpoints(client: ContainerClient, address: BlobAddress) -> ConditionalCheckpoints:
    return ConditionalCheckpoints(BlobTable(client, address, CHECKPOINTS))
