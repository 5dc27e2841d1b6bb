"""Producing through brokers: batched, idempotent, in the order of each key.

Records are hashed and encoded as they are handed over, and wait in queues, one for each row of
a broker (``row_queues``). What waits goes at once as one request if none is under way; what
comes meanwhile makes up the next one, so no clock is needed. Where much comes, up to five are
under way.

A request whose fate is unknown is sent again under the same number, so it is stored once.
Where its row was closed meanwhile, the answer says whether it is stored; if not, its records
go to the partitions that follow: nothing is lost, stored twice or overtaken by later records
of its key, through any number of eras, splits and merges (``sender``).

Limits: a process that dies does not know the fate of its last requests. Records that were given
up after ``delivery_timeout`` may be stored all the same.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import time_ns

from changefeed.feeds.errors import FeedUnavailable
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import BrokersAddress
from changefeed.log.client.client import BrokerClient
from changefeed.log.client.row_queues import Delivery, Placed, RowQueues, size_of
from changefeed.log.client.sender import ProducerOptions, Sender
from changefeed.log.producer import Producer
from changefeed.log.protocol.routes import Routes
from changefeed.log.records import Record, placed_record

_SLICE = 1000
"""So many records are encoded in one turn of the loop."""


class BrokersProducer(Producer):
    """Appends changes to a collection. Make it with ``open_producer``."""

    def __init__(
        self,
        client: BrokerClient,
        routes: Routes,
        options: ProducerOptions,
        *,
        clock: Callable[[], int] = time_ns,
    ) -> None:
        self._options = options
        self._clock = clock
        self._parts = routes.topology.parts
        self._used = 0
        self._room = asyncio.Event()
        self._entering = asyncio.Lock()
        self._closing = False
        self._queues = RowQueues(routes)
        self._sender = Sender(client, self._queues, options, freed=self._free)

    async def submit(self, records: Sequence[Record]) -> asyncio.Future[None]:
        async with self._entering:  # who comes first is sent first
            encoded = await self._encoded(records)
            size = size_of(encoded)
            while self._used and self._used + size > self._options.memory:
                self._room.clear()
                await self._room.wait()
            if self._closing:
                raise FeedUnavailable("the producer was closed: open another")
            return self._enter(encoded, size)

    async def flush(self) -> None:
        waiting = {x.done for x in self._queues.deliveries()}
        if waiting:
            await asyncio.wait(waiting)

    async def close(self) -> None:
        """Send what there is, and wait for it."""
        self._closing = True
        await self.flush()

    async def abandon(self) -> None:
        """Stop everything; what is on its way is cancelled."""
        self._closing = True
        await self._sender.stop()
        for delivery in self._queues.deliveries():
            delivery.done.cancel()

    async def _encoded(self, records: Sequence[Record]) -> list[Placed]:
        """Hash and encode; a few at a time, so that answers are taken meanwhile."""
        now_us = self._clock() // 1000
        encoded: list[Placed] = []
        for begin in range(0, len(records), _SLICE):
            if begin:
                await asyncio.sleep(0)
            some = records[begin : begin + _SLICE]
            encoded.extend(placed_record(x, self._parts, now_us) for x in some)
        return encoded

    def _enter(self, encoded: Sequence[Placed], size: int) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if not encoded:
            done.set_result(None)
            return done
        assert size > 0, f"{len(encoded)} records have bytes"
        self._sender.put(encoded, Delivery(len(encoded), done, loop.time()))
        self._used += size
        return done

    def _free(self, size: int) -> None:
        self._used -= size
        assert self._used >= 0, f"{size} bytes were freed, more than were on their way"
        self._room.set()


@asynccontextmanager
async def open_brokers_producer(
    address: BrokersAddress,
    access: BrokerAccess,
    options: ProducerOptions | None = None,
    *,
    clock: Callable[[], int] = time_ns,
) -> AsyncIterator[BrokersProducer]:
    """Write to a collection until the block is left, which waits for what was sent.

    A block that is left by an error waits for nothing.
    """
    async with BrokerClient.open(address, access) as client:
        routes = await client.routes()
        producer = BrokersProducer(client, routes, options or ProducerOptions(), clock=clock)
        try:
            yield producer
            await producer.close()
        finally:
            await producer.abandon()
