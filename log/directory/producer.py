"""Producing from Python to a log on this machine.

Changes that are sent while a frame is being written make up the next one, so a program that
sends from many tasks at once waits for few syncs, and a program that sends one after the other
waits for one each.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from changefeed.feeds.errors import FeedUnavailable
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import AppendResult, EventLogWriter
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.log.producer import Producer
from changefeed.log.records import Record


class EventLogProducer(Producer):
    """Appends changes to an event log; the one writer of it."""

    def __init__(self, writer: EventLogWriter) -> None:
        self._writer = writer
        self._unfinished = set[asyncio.Future[None]]()
        self._closed = False

    async def submit(self, records: Sequence[Record]) -> asyncio.Future[None]:
        if self._closed:
            raise FeedUnavailable("the producer was closed: open another")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unfinished.add(done)
        done.add_done_callback(self._unfinished.discard)
        self._writer.submit(records).add_done_callback(lambda x: _answer(done, x))
        return done

    async def flush(self) -> None:
        if self._unfinished:
            await asyncio.wait([*self._unfinished])

    async def close(self) -> None:
        """Take no more changes, and wait for those that were taken."""
        self._closed = True
        await self.flush()


def _answer(done: asyncio.Future[None], appended: asyncio.Future[AppendResult]) -> None:
    error = appended.exception()
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)


@asynccontextmanager
async def open_log_producer(
    home: Path, *, create: bool = True, parts: int = DEFAULT_PARTS
) -> AsyncIterator[EventLogProducer]:
    """Write to the event log in a directory; see ``log.producing.open_producer``."""
    if create and await asyncio.to_thread(has_nothing, home):
        await create_log(home, parts)
    async with EventLogWriter.open(home) as writer:
        producer = EventLogProducer(writer)
        try:
            yield producer
        finally:
            await producer.close()


def has_nothing(home: Path) -> bool:
    """Whether a log can be made there."""
    return not home.exists() or (home.is_dir() and not any(home.iterdir()))
