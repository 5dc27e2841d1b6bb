"""The calls of the observers of one range: by when what is in hand must have ended once its
worker winds down, and whether the observers are waited for too long.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from operator import itemgetter
from typing import Literal, NamedTuple

from changefeed.observers.errors import AttemptFailed
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


_What = Literal["call", "acknowledgement"]


class Overdue(NamedTuple):
    """What is waited for, and for how many seconds by now."""

    what: _What
    seconds: float


class CallWatch:
    """What the observer is waited for: neither a call of it nor what it was given may go unseen
    for ever. What takes ``longest`` seconds is overdue.

    The time of a call counts from its beginning. An observer that fails and is tried again is
    failing, not stuck. A call that was cut off has not come back.

    What was given and is not acknowledged has a time of its own, across calls and the waits
    between them. It counts from when the call returned that gave the oldest of it, and again
    each time the oldest is acknowledged: acknowledgements that are late and keep coming are
    progress. It begins again after an attempt that failed, too.

    Nothing here has a timer: each listing looks.

    Limits: nothing is ended here; ``observer.timeout`` ends calls, and nothing ends the other.
    Of several calls at once (``observer.concurrency``) the last to begin counts.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._clock = asyncio.get_running_loop().time
        self._since = dict[_What, float]()
        self._calls = 0

    @property
    def overdue(self) -> Overdue | None:
        """What is overdue, and waited for the longest."""
        if not self._since:
            return None
        what, since = min(self._since.items(), key=itemgetter(1))
        waited = self._clock() - since
        return Overdue(what, waited) if waited >= self._longest else None

    def begin(self) -> None:
        """Let the time of a call count, until it ends."""
        self._calls += 1
        self._since["call"] = self._clock()

    def end(self, error: BaseException | None = None) -> None:
        """A call has returned, or has ended with an error."""
        self._calls -= 1
        if error is not None and not isinstance(error, AttemptFailed):
            return
        if not self._calls:
            self._since.pop("call", None)
        if error is not None and "acknowledgement" in self._since:
            self._since["acknowledgement"] = self._clock()

    def unacknowledged(self) -> None:
        """Let the time of what is not acknowledged count, if it does not yet."""
        self._since.setdefault("acknowledgement", self._clock())

    def acknowledged(self, *, left: bool) -> None:
        """Count from now, or no more if nothing is left: the oldest was acknowledged."""
        if self._since.pop("acknowledgement", None) is not None and left:
            self.unacknowledged()

    def restart(self) -> None:
        """Count nothing of what was before: others observe."""
        self._since.clear()
