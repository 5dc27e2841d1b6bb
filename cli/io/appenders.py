"""What ``changefeed produce`` appends with: to a log on this machine, or through brokers."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from changefeed.log.producer import Producer
from changefeed.log.producing import open_producer
from changefeed.log.records import Record

_UNDER_WAY = 64

Done = Callable[[], None]


class Appender:
    """Appends batches in order. So many may be ``under_way``; what is noted is what lies before
    the first that is not durable. So of what failed some may be stored, and is stored again by
    who goes on there. ``producer`` is asked for with each batch that has changes.
    """

    def __init__(self, producer: Callable[[], Awaitable[Producer]], *, under_way: int) -> None:
        self._producer = producer
        self._most = under_way
        self._under_way = deque[tuple[asyncio.Future[None], Done]]()

    async def append(self, records: Sequence[Record], done: Done) -> None:
        """Append a batch, and call ``done`` once it and all before it are durable."""
        sent = asyncio.get_running_loop().create_future()
        if records:
            sent = await (await self._producer()).submit(records)
        else:
            sent.set_result(None)
        self._under_way.append((sent, done))
        while len(self._under_way) > self._most or self._under_way[0][0].done():
            await self._settle_first()
            if not self._under_way:
                break

    async def finish(self) -> None:
        """Wait for all of them."""
        while self._under_way:
            await self._settle_first()

    async def _settle_first(self) -> None:
        sent, done = self._under_way.popleft()
        await sent
        done()


@asynccontextmanager
async def through_brokers(address: str) -> AsyncIterator[Appender]:
    async with open_producer(address, create=False) as producer:

        async def opened() -> Producer:
            return producer

        yield Appender(opened, under_way=_UNDER_WAY)
