"""Brokers in this process: over one store in memory, and reached over real HTTP."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.metrics import BrokerMetrics
from changefeed.log.brokers.pings import Pings
from changefeed.log.brokers.run_core import open_core
from changefeed.log.brokers.server import LIMITS, BrokerServer
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import BrokersAddress
from changefeed.log.client.connection import BrokerConnection
from changefeed.log.client.feed import BrokersFeed
from changefeed.log.client.producer import BrokersProducer, open_brokers_producer
from changefeed.log.client.sender import ProducerOptions
from changefeed.log.core_settings import CoreSettings
from changefeed.log.records import Record
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.listening import take_port
from changefeed.runtime.scrape import Scrape
from changefeed.runtime.secret import Secret
from changefeed.runtime.web_server import serving
from changefeed.testing.feed_harness import NEW_YEAR_US, FeedAbility

QUICK = CoreSettings(
    heartbeat=0.1,
    expiration=1.0,
    settle=0.05,
    catalog_interval=0.02,
    seal_patience=0.5,
    retry_delay=0.02,
)
TOKEN = "a token of tests"
SECRET = Secret.of(TOKEN)
ACCESS = BrokerAccess(token=SECRET, wait=0.0, call_timeout=60.0)
"""Patient: on a busy machine this process may stand still for seconds, brokers included."""
COLLECTION = "orders"


@asynccontextmanager
async def broker(
    store: ObjectStore,
    name: str = "broker-1",
    settings: CoreSettings = QUICK,
    *,
    tls: ssl.SSLContext | None = None,
    token: Secret = SECRET,
    access: BrokerAccess | None = None,
) -> AsyncIterator[tuple[BrokerCore, str]]:
    """Run a broker, and give it with its address once it takes records."""
    with take_port("127.0.0.1", 0) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        scheme = "http" if tls is None else "https"
        async with (
            BrokerConnection.open(
                replace(access or ACCESS, token=token), over_tls=bool(tls)
            ) as pinging,
            open_core(
                store, name, address=address, settings=settings, ping=Pings(pinging, scheme)
            ) as core,
        ):
            meters = BrokerMetrics(MeterProvider())
            scrape = Scrape(CollectorRegistry())
            server = BrokerServer(core, meters, scrape, token=token, problems=list)
            async with serving(server.application(), LIMITS, listening, tls=tls):
                await core.wait_until_writing()
                yield core, address


def address_of(*addresses: str) -> BrokersAddress:
    return BrokersAddress(urls=tuple(f"http://{x}" for x in addresses), collection=COLLECTION)


class ThroughBrokers:
    """A feed over one broker, as the contract suite wants it."""

    can = frozenset(FeedAbility)

    def __init__(self, core: BrokerCore, feed: BrokersFeed, producer: BrokersProducer) -> None:
        self.feed = feed
        self._core = core
        self._producer = producer

    async def append(self, records: Sequence[Record]) -> None:
        await self._producer.send_many(records)

    async def split(self, range_id: RangeId) -> None:
        era = self._era
        await self._core.catalogs.split(COLLECTION, range_id)
        await self._reaches(era + 1)

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        era = self._era
        await self._core.catalogs.merge(COLLECTION, range_ids[0])
        await self._reaches(era + 1)

    @property
    def _era(self) -> int:
        return self._core.status().era

    async def _reaches(self, era: int) -> None:
        async with asyncio.timeout(20):
            while self._era < era or not self._core.status().writing:
                await self._core.writer.changed.wait()


@asynccontextmanager
async def through_brokers(parts: int) -> AsyncIterator[ThroughBrokers]:
    async with broker(MemoryStore()) as (core, address):
        await core.catalogs.create(COLLECTION, parts=parts)
        at, options = address_of(address), ProducerOptions()
        async with (
            BrokersFeed.open(at, ACCESS) as feed,
            open_brokers_producer(
                at, ACCESS, options, clock=lambda: NEW_YEAR_US * 1000
            ) as producer,
        ):
            yield ThroughBrokers(core, feed, producer)
