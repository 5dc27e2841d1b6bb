"""A collection as its brokers show it to planners and tasks."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import RangeId
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import parse_address
from changefeed.log.client.client import BrokerClient
from changefeed.log.errors import position_gone
from changefeed.log.protocol.messages import Block
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import PartitionBounds
from changefeed.pipeline.source.retries import by_name
from changefeed.runtime.backends import Address


@asynccontextmanager
async def through_brokers(address: Address) -> "AsyncIterator[ThroughBrokers]":
    """Raise ``FeedRefused``, with advice, for an address that leads to no collection."""
    where = parse_address(address.scheme, address.place)
    async with BrokerClient.open(where, BrokerAccess.of_environment()) as client:
        await client.routes()
        yield ThroughBrokers(client)


class ThroughBrokers:
    """See ``CollectionReader``: by the client of brokers."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._starts: dict[RangeId, int] = {}

    async def routes(self) -> Routes:
        return await self._client.routes()

    async def ends(self, names: Sequence[RangeId]) -> Mapping[RangeId, PartitionBounds]:
        found = await by_name(names, self._client.end)
        self._starts |= {name: x.start for name, x in found.items()}
        return found

    async def sequence_before(self, name: RangeId, time_us: int) -> int:
        return await self._client.sequence_before(name, time_us)

    async def part(
        self, name: RangeId, after: int, end: int, max_bytes: int
    ) -> Sequence[Block]:
        start = self._starts.get(name, 0)
        if after < start:
            raise position_gone(name, after, start)
        found = await self._client.read(name, after=after, most=max_bytes, wait=0.0)
        if not found.blocks:
            raise FeedUnavailable(
                f"range {name!r} ends at {found.last}, but it was seen at {end}: a broker is "
                f"behind, or the store was restored from an older copy"
            )
        return found.blocks
