"""The producer of a run: it appends the flights' changes while hosts read them."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from changefeed import open_producer

from .changes import Happened, records

_BATCHES = 100
_LARGEST_BATCH = 1000


class Producing:
    """Appends changes in the order of their times. Make it with ``started``.

    ``stored`` counts those that brokers have acknowledged, and ``slowest`` is the longest
    that a batch has waited for that, in seconds. It appends a share of all that ``allow``
    sets, and waits there: so what is to happen in the middle does.
    """

    def __init__(self, happened: Sequence[Happened], seconds: float) -> None:
        self.stored = 0
        self.slowest = 0.0
        self._happened = happened
        self._seconds = seconds
        self._allowed = 0.0
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def started(
        cls, address: str, happened: Sequence[Happened], seconds: float
    ) -> "AsyncIterator[Producing]":
        """Append until the block is left, or everything is."""
        found = cls(happened, seconds)
        found._task = asyncio.create_task(found._run(address))
        try:
            yield found
        finally:
            found._task.cancel()
            await asyncio.wait({found._task})

    @property
    def share(self) -> float:
        """Which share of all changes is stored."""
        return self.stored / max(len(self._happened), 1)

    def allow(self, share: float) -> None:
        """Let it append up to this share of all changes."""
        self._allowed = share
        self._more.set()

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _run(self, address: str) -> None:
        size = max(1, min(_LARGEST_BATCH, len(self._happened) // _BATCHES))
        due, total = time.monotonic(), len(self._happened)
        async with open_producer(address) as producer, asyncio.TaskGroup() as storing:
            for begin in range(0, total, size):
                while begin >= self._allowed * total:
                    self._more.clear()
                    await self._more.wait()
                batch = records(self._happened[begin : begin + size])
                sent = await producer.submit(batch)
                storing.create_task(self._stored(sent, len(batch)))
                due = max(due, time.monotonic()) + len(batch) / total * self._seconds
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _stored(self, sent: asyncio.Future[None], count: int) -> None:
        began = time.monotonic()
        await sent
        self.stored += count
        self.slowest = max(self.slowest, time.monotonic() - began)
