"""Notices that the observer does not get on: neither a call of it nor what it was given may go
unseen for ever.

The time of a call counts from its beginning. An observer that fails and is tried again is
failing, not stuck.

What was given and is not acknowledged has a time of its own, across calls and the waits
between them. It counts from when the call returned that gave the oldest of it, and again each
time the oldest is acknowledged: acknowledgements that are late and keep coming are progress.
It begins again after an attempt that failed, too. While it counts there is one timer for all
batches, which looks at the newest beginning when it is due.

Limits: nothing is ended here; ``observer.timeout`` ends calls, and nothing ends the other. Of
several calls at once (``observer.concurrency``) the last to begin counts.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from changefeed.observers.errors import AttemptFailed

Overdue = Literal["call", "acknowledgement"]
"""What is waited for."""


class CallWatch:
    """Calls ``overdue`` once for each call, or acknowledgement, that takes longer than
    ``longest`` seconds, and not for the one while the other is; and ``returned`` when a call
    has ended of itself, and well, or something is acknowledged, and neither is overdue.
    """

    def __init__(
        self,
        longest: float,
        *,
        overdue: Callable[[Overdue], None],
        returned: Callable[[], None],
    ) -> None:
        self._longest = longest
        self._report = overdue
        self._returned = returned
        self._loop = asyncio.get_running_loop()
        self._overdue: set[Overdue] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._calls = 0
        self._unacknowledged_since: float | None = None
        self._look: asyncio.TimerHandle | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Let the time of a call count within the block."""
        self._calls += 1
        self._stop_timer()
        self._timer = self._loop.call_later(self._longest, self._become_overdue, "call")
        try:
            yield
        except AttemptFailed:
            self._overdue.clear()
            if self._unacknowledged_since is not None:
                self._count_anew()
            raise
        finally:
            self._calls -= 1
            if not self._calls:
                self._stop_timer()
        self._over("call")  # what was cut off has not come back

    def unacknowledged(self) -> None:
        """Let the time of what is not acknowledged count, if it does not yet."""
        if self._unacknowledged_since is None:
            self._count_anew()

    def acknowledged(self, *, left: bool) -> None:
        """Count from now, or no more if nothing is left: the oldest was acknowledged."""
        if self._unacknowledged_since is None:
            return
        self._over("acknowledgement")
        self._unacknowledged_since = None
        if left:
            self._count_anew()

    def end(self) -> None:
        """Count nothing more: the observer is closed."""
        self._stop_timer()
        self._overdue.clear()
        self._unacknowledged_since = None
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _count_anew(self) -> None:
        self._unacknowledged_since = self._loop.time()
        if self._look is None:
            self._look = self._loop.call_later(self._longest, self._look_at_oldest)

    def _look_at_oldest(self) -> None:
        self._look = None
        if self._unacknowledged_since is None:
            return
        due = self._unacknowledged_since + self._longest
        if self._loop.time() < due:
            self._look = self._loop.call_at(due, self._look_at_oldest)
        else:
            self._become_overdue("acknowledgement")

    def _become_overdue(self, what: Overdue) -> None:
        is_news = not self._overdue
        self._overdue.add(what)
        if is_news:
            self._report(what)

    def _over(self, what: Overdue) -> None:
        self._overdue.discard(what)
        if not self._overdue:
            self._returned()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
