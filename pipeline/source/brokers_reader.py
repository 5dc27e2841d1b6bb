"""From the address of a collection to its reader: over its store, or through its brokers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from changefeed.feeds.brokers.access import BrokerAccess
from changefeed.feeds.brokers.address import parse_address
from changefeed.feeds.brokers.client import BrokerClient
from changefeed.feeds.brokers.errors import PositionGone
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.store_address import SCHEMES, parse_store_address
from changefeed.feeds.brokers.stored_collection import StoredCollection
from changefeed.feeds.brokers.stores.addresses import open_store
from changefeed.feeds.brokers.stores.store import StoreRefused
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.collection_reader import CollectionReader
from changefeed.pipeline.source.retries import by_name
from changefeed.runtime.backends import Address


@asynccontextmanager
async def open_collection(address: Address) -> AsyncIterator[CollectionReader]:
    """Raise ``FeedRefused``, with advice, for an address that leads to no collection."""
    if address.scheme in SCHEMES:
        yield await _stored(address)
        return
    where = parse_address(address.scheme, address.place)
    async with BrokerClient.open(where, BrokerAccess.of_environment()) as client:
        yield ThroughBrokers(client, await client.routes())


async def _stored(address: Address) -> StoredCollection:
    where = parse_store_address(address.scheme, address.place)
    try:
        store = open_store(where.store)
    except StoreRefused as error:
        raise FeedRefused(str(error)) from error
    return await StoredCollection.open(store, where.collection)


class ThroughBrokers:
    """See ``CollectionReader``: where the store cannot be read."""

    def __init__(self, client: BrokerClient, routes: Routes) -> None:
        self._client = client
        self._routes = routes

    async def routes(self) -> Routes:
        known = self._routes.topology.catalog
        found = await self._client.routes(at_least=known)
        if found.topology.catalog >= known or found.identity != self._routes.identity:
            self._routes = found
        return self._routes

    async def ends(self, names: Sequence[RangeId]) -> Mapping[RangeId, int]:
        async def end(name: RangeId) -> int:
            partition = self._routes.partition(name)
            if partition.last is not None:
                return partition.last
            urls = self._routes.to_read(partition)
            return (await self._client.end(urls, self._routes.identity, name)).last

        return await by_name(names, end)

    async def sequence_before(self, name: RangeId, time_us: int) -> int:
        urls = self._routes.to_read(self._routes.partition(name))
        log = self._routes.identity
        return await self._client.sequence_before(urls, log, name, time_us)

    async def blocks(
        self, name: RangeId, after: int, end: int, max_bytes: int
    ) -> Sequence[Block]:
        partition = self._routes.partition(name)
        if after < partition.start:
            raise PositionGone(name, after, partition.start)
        found = await self._client.read(
            self._routes.to_read(partition),
            self._routes.identity,
            name,
            after=after,
            most=max_bytes,
            wait=0.0,
        )
        if not found.blocks:
            raise FeedUnavailable(
                f"range {name!r} ends at {found.last}, but it was seen at {end}: a broker is "
                f"behind, or the store was restored from an older copy"
            )
        return found.blocks
