"""Producing from Python: one change at a time, and still many to a transaction.

A batch is one transaction of the log, and costs one sync of the disk. Changes that are sent
while a batch is being written make up the next one, so a program that sends from many tasks at
once waits for few syncs, and a program that sends one after the other waits for one each.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.eventlog.create import DEFAULT_PARTS, create_log
from changefeed.feeds.eventlog.records import Record
from changefeed.feeds.eventlog.sealing import SealPolicy
from changefeed.feeds.eventlog.writer import EventLogWriter
from changefeed.feeds.producer import Producer

_BATCH = 1000

_Waiting = tuple[Sequence[Record], asyncio.Future[None]]


class EventLogProducer(Producer):
    """Appends changes to an event log; the one writer of it."""

    def __init__(self, writer: EventLogWriter) -> None:
        self._writer = writer
        self._waiting: deque[_Waiting] = deque()
        self._unfinished: dict[asyncio.Future[None], None] = {}
        self._some = asyncio.Event()
        self._closing = False

    async def submit(self, records: Sequence[Record]) -> asyncio.Future[None]:
        if self._closing:
            raise FeedUnavailable("the producer was closed: open another")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if records:
            self._waiting.append((records, done))
            self._unfinished[done] = None
            done.add_done_callback(self._unfinished.pop)
            self._some.set()
        else:
            done.set_result(None)
        return done

    async def flush(self) -> None:
        if self._unfinished:
            await asyncio.wait([*self._unfinished])

    async def _run(self) -> None:
        """Append what is sent until ``_close``, and what was sent before it."""
        while self._waiting or not self._closing:
            if self._waiting:
                await self._append(self._next_batch())
            else:
                self._some.clear()
                await self._some.wait()

    def _close(self) -> None:
        self._closing = True
        self._some.set()

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0][0]) <= _BATCH):
            waiting = self._waiting.popleft()
            batch.append(waiting)
            size += len(waiting[0])
        assert batch, "somebody waits for what is appended"
        assert size <= _BATCH or len(batch) == 1, f"{size} records of several callers"
        return batch

    async def _append(self, batch: Sequence[_Waiting]) -> None:
        """Append what several callers wait for; a change that is refused is only its own."""
        try:
            await self._writer.append([x for records, _ in batch for x in records])
        except FeedRefused as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            for one in batch:
                await self._append([one])
        except BaseException as error:
            _fail(batch, error)
            if not isinstance(error, Exception):
                raise
        else:
            for _, done in batch:
                if not done.done():
                    done.set_result(None)


def _fail(batch: Sequence[_Waiting], error: BaseException) -> None:
    for _, done in batch:
        if isinstance(error, asyncio.CancelledError):
            done.cancel()
        elif not done.done():
            done.set_exception(error)


@asynccontextmanager
async def open_log_producer(
    home: Path,
    *,
    create: bool = True,
    parts: int = DEFAULT_PARTS,
    sealing: SealPolicy | None = None,
) -> AsyncIterator[EventLogProducer]:
    """Write to the event log in a directory; see ``feeds.producing.open_producer``."""
    if create and await asyncio.to_thread(_has_nothing, home):
        await create_log(home, parts)
    async with EventLogWriter.open(home, sealing=sealing) as writer:
        producer = EventLogProducer(writer)
        running = asyncio.create_task(producer._run())  # noqa: SLF001 - of this module
        try:
            yield producer
        finally:
            producer._close()  # noqa: SLF001
            await running


def _has_nothing(home: Path) -> bool:
    return not home.exists() or (home.is_dir() and not any(home.iterdir()))
