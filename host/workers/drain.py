"""Whether a worker winds down: why, and by when what is in hand must have ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from changefeed.observers.observer import CloseReason
from changefeed.runtime.light_event import LightEvent


class Drain:
    """One worker's drain. It begins once: the first reason counts, and the first deadline."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._begun = LightEvent()
        self._in_hand: asyncio.Timeout | None = None
        self.reason: CloseReason | None = None
        """Why the worker winds down; ``None`` while it does not."""
        self.deadline: float | None = None
        """When, on the loop's clock, what is in hand must have ended; ``None`` for never."""

    @property
    def overdue(self) -> bool:
        return self.deadline is not None and self._clock() >= self.deadline

    def begin(self, reason: CloseReason, *, within: float | None) -> bool:
        """Wind down; return whether this is news. ``within`` are seconds from now.

        A drain that had no deadline gets one: a host that stops may still be asked to hand
        a lease over.
        """
        news = self.reason is None
        if news:
            self.reason = reason
        if within is not None and self.deadline is None:
            self.deadline = self._clock() + within
            if self._in_hand is not None:
                self._in_hand.reschedule(self.deadline)
        self._begun.set()
        return news

    async def sleep(self, seconds: float) -> None:
        """Wait, but not past the beginning of the drain."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._begun.wait()

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator[None]:
        """Raise ``TimeoutError`` in the block at the deadline, also one that is set later."""
        assert self._in_hand is None, "one call at a time is under way"
        try:
            async with asyncio.timeout_at(self.deadline) as self._in_hand:
                yield
        finally:
            self._in_hand = None
