"""Whether a worker winds down, and by when what is in hand must have ended."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress

from changefeed.observers.observer import CloseReason


class Drain:
    """Whether a worker winds down: why, and by when what is in hand must have ended.

    It begins once: the first reason counts, and the first deadline.
    """

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._in_hand = set[asyncio.Timeout]()
        self._waiting = set[asyncio.Timeout]()
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
            for call in self._in_hand:
                call.reschedule(self.deadline)
        for wait in self._waiting:
            wait.reschedule(self._clock())

    @asynccontextmanager
    async def until_begun(self) -> AsyncIterator[None]:
        """Leave the block as soon as the drain begins."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if self.reason is None else 0) as wait:
                self._waiting.add(wait)
                try:
                    yield
                finally:
                    self._waiting.discard(wait)

    async def bounded(self, call: Awaitable[None]) -> None:
        """Await a call; raise ``TimeoutError`` at the deadline, also one that is set later."""
        async with asyncio.timeout_at(self.deadline) as end:
            self._in_hand.add(end)
            try:
                await call
            finally:
                self._in_hand.discard(end)
