"""What a worker tells its observer, and what the observer says to it."""

import asyncio
import threading
from collections.abc import Callable

from changefeed.feeds.feed import Change, Feed, FeedRange
from changefeed.host.workers.acknowledgements import Acknowledgements
from changefeed.host.workers.checkpointer import Checkpointer
from changefeed.leases.lease import HostName, Lease


class WorkerContext:
    """The context of one lease: the observer may use it from any thread."""

    def __init__(
        self,
        lease: Lease,
        host: HostName,
        *,
        feed: Feed,
        acknowledgements: Acknowledgements,
        checkpoints: Checkpointer,
    ) -> None:
        self._lease = lease
        self._host = host
        self._feed = feed
        self._acknowledgements = acknowledgements
        self._checkpoints = checkpoints
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.handing_over = False
        self.moved = asyncio.Event()
        """Set whenever the observer said that something is done."""

    @property
    def range(self) -> FeedRange:
        return self._lease.range

    @property
    def host(self) -> str:
        return self._host

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def checkpoint(self, change: Change) -> None:
        self._say(self._acknowledgements.done_up_to, change)

    def acknowledge(self, change: Change) -> None:
        self._say(self._acknowledgements.done, change)

    async def flush(self) -> None:
        await self._checkpoints.written()

    def _say(self, count: Callable[[Change], Change | None], change: Change) -> None:
        if change.range_id != self.range.id or not self._acknowledgements.was_delivered(change):
            raise ValueError(
                f"change {change.sequence} of range {change.range_id!r} was not delivered to "
                f"the observer of range {self.range.id!r}, so it cannot be done"
            )
        if threading.get_ident() == self._thread:
            self._count(count, change)
        else:
            self._loop.call_soon_threadsafe(self._count, count, change)

    def _count(self, count: Callable[[Change], Change | None], change: Change) -> None:
        watermark = count(change)
        if watermark is not None:
            self._checkpoints.reached = self._feed.continuation_after(watermark)
            self._checkpoints.advance()
        self.moved.set()
