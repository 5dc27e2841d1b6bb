"""The context that an observer gets: what it may know, what it says is done, and whether it may
be called.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from changefeed.feeds.feed import Change, FeedRange
from changefeed.host.call_watch import CallWatch
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.owned_lease import OwnedLease
from changefeed.leases.lease import HostName
from changefeed.observers.call import Blame
from changefeed.observers.errors import LeaseFenced, ObserverFailed
from changefeed.observers.observer import CloseReason
from changefeed.runtime.light_event import LightEvent


class Drain:
    """Whether a worker winds down: why, and by when what is in hand must have ended.

    It begins once: the first reason counts, and the first deadline.
    """

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._begun = LightEvent()
        self._in_hand: asyncio.Timeout | None = None
        self._waiting: asyncio.Timeout | None = None
        self.reason: CloseReason | None = None
        """Why the worker winds down; ``None`` while it does not."""
        self.deadline: float | None = None
        """When, on the loop's clock, what is in hand must have ended; ``None`` for never."""

    @property
    def overdue(self) -> bool:
        return self.deadline is not None and self._clock() >= self.deadline

    def begin(self, reason: CloseReason, *, within: float | None) -> None:
        """Wind down. ``within`` are seconds from now.

        A drain that had no deadline gets one: a host that stops may still be asked to hand
        a lease over.
        """
        self.reason = self.reason or reason
        if within is not None and self.deadline is None:
            self.deadline = self._clock() + within
            if self._in_hand is not None:
                self._in_hand.reschedule(self.deadline)
        self._begun.set()
        if self._waiting is not None:
            self._waiting.reschedule(self._clock())

    async def sleep(self, seconds: float) -> None:
        """Wait, but not past the beginning of the drain."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._begun.wait()

    @asynccontextmanager
    async def until_begun(self) -> AsyncIterator[None]:
        """Leave the block as soon as the drain begins."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if self.reason is None else 0) as self._waiting:
                yield
        self._waiting = None

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator[None]:
        """Raise ``TimeoutError`` in the block at the deadline, also one that is set later."""
        assert self._in_hand is None, "one call at a time is under way"
        try:
            async with asyncio.timeout_at(self.deadline) as self._in_hand:
                yield
        finally:
            self._in_hand = None


class WorkerContext:
    """The context of one observer of one lease, which may use it from any thread.

    To the wrappers of the observer it is the fence, as ``changefeed.observers.call`` describes
    it.
    """

    blamed: Blame | None = None

    def __init__(
        self,
        owned: OwnedLease,
        host: HostName,
        *,
        checkpoints: Checkpointer,
        drain: Drain,
        watch: CallWatch,
    ) -> None:
        self._owned = owned
        self._checkpoints = checkpoints
        self._in_hand = checkpoints.in_hand
        self._drain = drain
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._closed = False
        self._moved = LightEvent()
        self.range: FeedRange = owned.lease.range
        self.host: str = host
        self.epoch = owned.lease.epoch
        self.handing_over = False

    # what the worker says

    def announce_handover(self) -> None:
        """Let the observer know that nothing more will be delivered; wake who waits for it."""
        self.handing_over = True
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

    # what the wrappers ask

    def check(self) -> None:
        """Raise ``LeaseFenced`` from the moment on that another host may own the lease."""
        if not self._owned.may_act:
            raise LeaseFenced(f"the lease of range {self.range.id!r} is not ours")
        self._watch.attempt()

    async def sleep(self, seconds: float) -> None:
        """Wait before the next attempt; raise ``ObserverFailed`` once the worker drains."""
        self._watch.rest()
        await self._drain.sleep(seconds)
        if self._drain.reason is not None:
            reason = f"given up: {self._drain.reason.value}"
            raise ObserverFailed(self.range.id, None, 0, reason)

    # what the observer says

    def checkpoint(self, change: Change) -> None:
        self._say(change, up_to=True)

    def acknowledge(self, change: Change) -> None:
        self._say(change, up_to=False)

    async def flush(self) -> None:
        await self._checkpoints.written()

    def _say(self, change: Change, *, up_to: bool) -> None:
        of_this = change.range_id in {self.range.id, self.range.whole}
        if not (of_this and self._in_hand.was_delivered(change)):
            raise ValueError(
                f"change {change.sequence} of range {change.range_id!r} was not delivered to "
                f"the observer of range {self.range.id!r}, so it cannot be done"
            )
        if threading.get_ident() == self._thread:
            self._count(change, up_to)
        else:
            self._loop.call_soon_threadsafe(self._count, change, up_to)

    def _count(self, change: Change, up_to: bool) -> None:  # noqa: FBT001 - called by the loop
        if self._closed:
            return
        if self._checkpoints.acknowledge(change, up_to=up_to):
            self._watch.acknowledged(left=self._in_hand.unacknowledged > 0)
        self._moved.set()
