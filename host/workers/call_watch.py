"""Notices that the observer does not come back: no call of it may go unseen for ever.

The time counts from the beginning of the call under way, and from the last attempt where there
are several: an observer that fails and is tried again is failing, not stuck. While a retry
waits for its turn, nothing is under way. To wait for an observer that does not acknowledge
what it was given counts like a call.

Limits: nothing is ended here; ``observer.timeout`` does that. Of several partitions that are
called at once (``observer.concurrency``) the last to begin counts.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CallWatch:
    """Calls ``overdue`` once for each call that takes longer than ``longest`` seconds, and
    ``returned`` when a call has ended of itself, and well.
    """

    def __init__(
        self, longest: float, *, overdue: Callable[[], None], returned: Callable[[], None]
    ) -> None:
        self._longest = longest
        self._overdue = overdue
        self._returned = returned
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._watching = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Let the time count within the block."""
        self._watching = True
        self.attempt()
        try:
            yield
        finally:
            self._watching = False
            self.rest()
        self._returned()  # what was cut off has not come back

    def attempt(self) -> None:
        """Count from now: the observer is called, or called again."""
        self.rest()
        if self._watching:
            self._timer = self._loop.call_later(self._longest, self._overdue)

    def rest(self) -> None:
        """Do not count: nothing is under way until the next attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
