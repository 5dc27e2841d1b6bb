"""From an address to records: the container found (or created), its key, its prefix.

``cosmos://HOST/DATABASE/CONTAINER``, with these options:

``prefix``     what the id of every lease begins with; ``changefeed`` unless given
``processor``  with ``feed=DATABASE/CONTAINER`` of the same account, instead: the prefix
               that a .NET processor of that name gives its leases
``mode``       ``latest-version`` or ``all-versions``, as the feed is read
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceExistsError, CosmosResourceNotFoundError

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import (
    AddressWrong,
    CosmosAccess,
    CosmosAddress,
    read_address,
)
from changefeed.feeds.cosmos.client import (
    LEASE_OPTIONS,
    Container,
    connect,
    container_of,
    hosts_of,
)
from changefeed.runtime.backends import Address
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.backend import StoreBackend
from changefeed.stores.cosmos.document_ids import DocumentIds, processor_prefix
from changefeed.stores.cosmos.errors import OF_STORES
from changefeed.stores.cosmos.items import Items
from changefeed.stores.cosmos.store import CosmosStore

_IN_NO_ID = re.compile(r"[/\\?#\x00-\x1f]")
_ANY = "SELECT TOP 1 c.id FROM c WHERE STARTSWITH(c.id, @begin)"
OPTIONS = ("prefix", "processor", "feed", "mode")
DEFAULT_PREFIX = "changefeed"

INDEXING: dict[str, Any] = {
    # Ids are always indexed, and nothing else is asked for.
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [],
    "excludedPaths": [{"path": "/*"}],
}


@asynccontextmanager
async def _open(at: Address, options: OpenOptions) -> AsyncIterator[CosmosStore]:
    """Open the records of a fleet beside its leases, or without any."""
    opening = open_container_at(at.scheme, at.place, options.cosmos, create=options.create)
    async with opening as (container, names):
        yield CosmosStore(Items(container), names)


@asynccontextmanager
async def open_container_at(
    scheme: str, place: str, access: CosmosAccess, *, create: bool = False
) -> AsyncIterator[tuple[Container, DocumentIds]]:
    """Open the container at an address. Raise ``StoreRefused`` if it cannot be used."""
    address = lease_address(scheme, place)
    async with connect(address, access, OF_STORES, **LEASE_OPTIONS) as client:
        if create:
            with OF_STORES.errors(str(address)):
                await create_container(client, address)
        async with open_container_of(client, address) as opened:
            yield opened


@asynccontextmanager
async def open_container_of(
    client: CosmosClient, address: CosmosAddress
) -> AsyncIterator[tuple[Container, DocumentIds]]:
    """Open the container at an address of the account of a client."""
    async with Container.opened(container_of(client, address), OF_STORES) as container:
        with OF_STORES.errors(container.where):
            prefix = await prefix_of(client, address, container.proxy)
        yield container, DocumentIds(prefix)


def lease_address(scheme: str, place: str) -> CosmosAddress:
    """Read the address of a lease container. Raise ``StoreRefused`` with advice."""
    try:
        return read_address(scheme, place, known=OPTIONS)
    except AddressWrong as error:
        raise StoreRefused(str(error)) from error


async def create_container(client: CosmosClient, address: CosmosAddress) -> None:
    """Create the lease container, and its database, if they are not there.

    It is looked for first, because only keys may create; looking needs less. Hosts that
    start together all find nothing, and all but one learn that it is there by now.
    """
    try:
        await container_of(client, address).read()
    except CosmosResourceNotFoundError:
        pass
    else:
        return
    await _create_database(client, address.database)
    with suppress(CosmosResourceExistsError):
        await client.get_database_client(address.database).create_container(
            address.container, PartitionKey("/id"), default_ttl=-1, indexing_policy=INDEXING
        )


async def _create_database(client: CosmosClient, name: str) -> None:
    try:
        await client.get_database_client(name).read()
    except CosmosResourceNotFoundError:
        with suppress(CosmosResourceExistsError):
            await client.create_database(name)


async def prefix_of(
    client: CosmosClient, address: CosmosAddress, leases: ContainerProxy
) -> str:
    """Return the prefix that the address gives, or that a .NET processor would."""
    options = address.options
    processor, feed = options.get("processor"), options.get("feed")
    for name in ("prefix", "processor"):
        refuse_for_ids(name, options.get(name, ""))
    if processor is None and feed is None:
        return options.get("prefix") or DEFAULT_PREFIX
    if processor is None or feed is None or "prefix" in options:
        raise StoreRefused(
            "processor=NAME and feed=DATABASE/CONTAINER go together in an address of leases: "
            "give both (in quotes: a shell ends a command at &), or prefix=… alone"
        )
    database, _, name = feed.partition("/")
    if not database or not name:
        raise StoreRefused(f"feed={feed} should be feed=DATABASE/CONTAINER")
    monitored = client.get_database_client(database).get_container_client(name)
    return await prefix_of_processor(processor, monitored, leases)


async def prefix_of_processor(
    processor: str, feed: ContainerProxy, leases: ContainerProxy
) -> str:
    """Return the prefix that a .NET processor of a name over a feed gives its leases.

    It has the host of the account in it, as it is addressed. The account may have been
    addressed otherwise when the leases were made: they are the same ones.
    """
    # dbs/RID/colls/RID/: the database is asked for nothing, which takes rights of its own.
    _, database_rid, _, container_rid = (await feed.read())["_self"].strip("/").split("/")
    prefixes = [
        processor_prefix(processor, x, database_rid, container_rid)
        for x in await hosts_of(feed)
    ]
    for prefix in prefixes:
        if await _has_leases(leases, prefix):
            return prefix
    return prefixes[0]


def refuse_for_ids(name: str, text: str) -> None:
    """Raise ``StoreRefused`` for what cannot begin the id of an item."""
    if _IN_NO_ID.search(text):
        raise StoreRefused(
            f"{name}={text} begins the ids of documents of leases, and Cosmos DB takes no id "
            f"with / \\ ? # or a control character: choose another"
        )


async def _has_leases(leases: ContainerProxy, prefix: str) -> bool:
    begin: dict[str, object] = {"name": "@begin", "value": DocumentIds(prefix).leases}
    found = leases.query_items(_ANY, parameters=[begin], max_item_count=1)
    return bool([x async for x in found])


BACKEND = StoreBackend(
    name="cosmos",
    place="//HOST/DATABASE/CONTAINER",
    open_store=_open,
    locating=("prefix", "processor", "feed"),
)
