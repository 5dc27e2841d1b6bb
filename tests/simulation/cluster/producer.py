"""The producer that users have, over a simulated network."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.log.client.producer import BrokersProducer
from changefeed.log.client.sender import ProducerOptions
from changefeed.log.records import Record

from .checker import Sent
from .transport import SimClient

if TYPE_CHECKING:
    from .world import World

_UNWRITABLE = "\ud800"
"""A key that has no UTF-8: what was handed over with it is refused."""


class SimProducer:
    """Hands records of its own keys to a producer, and checks what it says of them."""

    def __init__(self, world: "World", collection: str, number: int) -> None:
        self.collection = collection
        self.stopping = False
        self.idle = False
        self._world = world
        self._random = world.random
        self._keys = [f"{number}-{x}" for x in range(world.random.choice([1, 5, 30]))]
        self._counts = dict.fromkeys(self._keys, 0)
        self._open: set[asyncio.Future[None]] = set()
        self._died = False

    async def run(self) -> None:
        random = self._random
        options = ProducerOptions(
            memory=random.choice([500, 1_000_000]),
            delivery_timeout=random.choice([10.0, 60.0, 600.0]),
            request_timeout=random.choice([0.5, 2.0, 30.0]),
        )
        producer = await self._opened(options)
        try:
            while not self.stopping:
                await self._write(producer)
                await self._world.pause(random.choice([0.0, 0.05, 0.5, 2.0]))
            if not self._died:
                await producer.close()
        finally:
            await producer.abandon()
        if self._open:
            await asyncio.wait(self._open)
        self.idle = True

    async def _opened(self, options: ProducerOptions) -> BrokersProducer:
        client = SimClient(self._world, self.collection)
        while True:
            try:
                routes = await client.routes()
            except (FeedUnavailable, FeedRefused):  # it is not there, or not known there yet
                await self._world.pause(0.5)
            else:
                return BrokersProducer(client, routes, options, clock=self._wall_ns)

    def _wall_ns(self) -> int:
        return self._world.wall_us() * 1000

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def die(self) -> None:
        """End without waiting, as a process that is killed: what it had is of unknown fate."""
        self._died = self.stopping = True

    async def _write(self, producer: BrokersProducer) -> None:
        sent = [self._next() for _ in range(self._random.choice([1, 1, 3, 10]))]
        records = [x.record() for x in sent]
        checker = self._world.checker
        if self._random.random() < 0.02:
            records.append(Record(key=_UNWRITABLE, body=b"1"))
        try:
            done = await producer.submit(records)
        except (FeedUnavailable, FeedRefused):
            for x in sent:
                checker.refused(x)
        else:
            self._open.add(done)
            done.add_done_callback(partial(self._settled, sent))

    def _next(self) -> Sent:
        key = self._random.choice(self._keys)
        self._counts[key] += 1
        sent = Sent(self.collection, key, self._counts[key])
        self._world.checker.sent(sent)
        return sent

    def _settled(self, sent: list[Sent], done: "asyncio.Future[None]") -> None:
        self._open.discard(done)
        checker = self._world.checker
        known = not done.cancelled() and done.exception() is None
        for x in sent:
            if known:
                checker.acknowledged(x)
            else:
                checker.unknown(x)
        if not done.cancelled() and (error := done.exception()) is not None:
            with suppress(FeedUnavailable, FeedRefused):
                raise error
