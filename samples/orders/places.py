"""Where the sample's containers are, and a client for them.

``cosmos://HOST/DATABASE/CONTAINER``, or ``cosmos+http://…`` for an emulator on this
machine. Keys come from the environment, as those of the hosts do.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceExistsError

from changefeed.feeds.cosmos.address import AddressWrong, CosmosAccess, account_of, read_address


@asynccontextmanager
async def opened(address: str, key: str) -> AsyncIterator[ContainerProxy]:
    """Open a container, made by the partition key path ``key`` if it is not there."""
    scheme, _, place = address.partition(":")
    read = read_address(scheme, place, known=())
    account = account_of(read, CosmosAccess.of(os.environ))
    if account.key is None:
        raise AddressWrong("this sample needs a key: set CHANGEFEED_COSMOS__KEY")
    async with CosmosClient(account.endpoint, account.key.current()) as client:
        with suppress(CosmosResourceExistsError):
            await client.create_database(read.database)
        database = client.get_database_client(read.database)
        with suppress(CosmosResourceExistsError):
            await database.create_container(read.container, PartitionKey(key))
        yield database.get_container_client(read.container)
