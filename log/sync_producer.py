"""A producer for programs without an event loop: it has one of its own, in a thread."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from changefeed.feeds.feed import Operation
from changefeed.log.client.sender import ProducerOptions
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.log.producer import Producer
from changefeed.log.producing import open_producer
from changefeed.log.records import Record


class SyncProducer:
    """Appends changes, and blocks until they are durable. Make it with ``open_sync_producer``.

    Any number of threads may call; those of one thread keep their order.
    """

    def __init__(self, producer: Producer, loop: asyncio.AbstractEventLoop) -> None:
        self._producer = producer
        self._loop = loop

    def send(
        self,
        key: str,
        value: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - the name of the field it fills
        operation: Operation = Operation.INSERT,
        previous: Any = None,
    ) -> None:
        """Append one change: as ``Producer.send``."""
        asyncio.run_coroutine_threadsafe(
            self._producer.send(key, value, id=id, operation=operation, previous=previous),
            self._loop,
        ).result()

    def send_many(self, records: Sequence[Record]) -> None:
        """Append some changes: as ``Producer.send_many``."""
        self.submit(records).result()

    def submit(self, records: Sequence[Record]) -> Future[None]:
        """Hand changes over; return what is done once they are durable, or have failed."""
        return asyncio.run_coroutine_threadsafe(self._producer.send_many(records), self._loop)

    def flush(self) -> None:
        """Block until all that was handed over is durable or has failed."""
        asyncio.run_coroutine_threadsafe(self._producer.flush(), self._loop).result()


@contextmanager
def open_sync_producer(
    address: str | Path,
    *,
    create: bool = True,
    parts: int = DEFAULT_PARTS,
    options: ProducerOptions | None = None,
) -> Iterator[SyncProducer]:
    """Write from code that is not async, until the block is left: as ``open_producer``."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="producer", daemon=True)
    thread.start()
    opening = open_producer(address, create=create, parts=parts, options=options)

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        producer = run(opening.__aenter__())
        try:
            yield SyncProducer(producer, loop)
        except BaseException as error:
            if not run(opening.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            run(opening.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
