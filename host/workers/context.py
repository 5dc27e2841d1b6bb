"""The context that an observer gets: what it may know, and what it says is done."""

import asyncio
import threading
from collections.abc import Callable

from changefeed.feeds.feed import Change, Feed, FeedRange
from changefeed.host.workers.acknowledgements import Acknowledgements
from changefeed.host.workers.call_watch import CallWatch
from changefeed.host.workers.checkpointer import Checkpointer
from changefeed.leases.lease import HostName, Lease
from changefeed.runtime.light_event import LightEvent


class WorkerContext:
    """The context of one observer of one lease, which may use it from any thread."""

    def __init__(
        self,
        lease: Lease,
        host: HostName,
        *,
        feed: Feed,
        acknowledgements: Acknowledgements,
        checkpoints: Checkpointer,
        watch: CallWatch,
    ) -> None:
        self._lease = lease
        self._host = host
        self._feed = feed
        self._acknowledgements = acknowledgements
        self._checkpoints = checkpoints
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._handing_over = False
        self._closed = False
        self._moved = LightEvent()

    @property
    def range(self) -> FeedRange:
        return self._lease.range

    @property
    def host(self) -> str:
        return self._host

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    @property
    def handing_over(self) -> bool:
        return self._handing_over

    def announce_handover(self) -> None:
        """Let the observer know that nothing more will be delivered; wake who waits for it."""
        self._handing_over = True
        self._moved.set()

    def observer_closed(self) -> None:
        """Count nothing more that the observer says.

        The next observer is given the same changes again: what is done is for it to say.
        """
        self._closed = True

    async def acknowledged(self) -> None:
        """Wait until the observer says that something is done, or a handover is announced."""
        self._moved.clear()
        await self._moved.wait()

    def checkpoint(self, change: Change) -> None:
        self._say(self._acknowledgements.done_up_to, change)

    def acknowledge(self, change: Change) -> None:
        self._say(self._acknowledgements.done, change)

    async def flush(self) -> None:
        await self._checkpoints.written()

    def _say(self, count: Callable[[Change], Change | None], change: Change) -> None:
        of_this = change.range_id in {self.range.id, self.range.whole}
        if not (of_this and self._acknowledgements.was_delivered(change)):
            raise ValueError(
                f"change {change.sequence} of range {change.range_id!r} was not delivered to "
                f"the observer of range {self.range.id!r}, so it cannot be done"
            )
        if threading.get_ident() == self._thread:
            self._count(count, change)
        else:
            self._loop.call_soon_threadsafe(self._count, count, change)

    def _count(self, count: Callable[[Change], Change | None], change: Change) -> None:
        if self._closed:
            return
        before = self._acknowledgements.unacknowledged
        watermark = count(change)
        if watermark is not None:
            left = self._acknowledgements.unacknowledged
            assert left < before, (
                f"{watermark.sequence} is done, and {left} of {before} are left"
            )
            self._checkpoints.done(self._feed.position_after(watermark), changes=before - left)
            self._checkpoints.advance()
            self._watch.acknowledged(left=left > 0)
        self._moved.set()
