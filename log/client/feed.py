"""Reading a collection through its brokers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import BrokersAddress
from changefeed.log.client.client import BrokerClient
from changefeed.log.reading.collection_feed import CollectionFeed


class BrokersFeed(CollectionFeed):
    """A feed over the brokers of a cluster. Make it with ``open``."""

    @classmethod
    @asynccontextmanager
    async def open(cls, address: BrokersAddress, access: BrokerAccess) -> AsyncIterator[Self]:
        """Read until the block is left.

        Raise ``FeedRefused`` for a collection that is not there or may not be read.
        """
        async with BrokerClient.open(address, access) as client:
            yield cls(client, await client.routes(), wait=access.wait)
