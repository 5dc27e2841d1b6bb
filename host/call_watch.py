"""Notices that the observer does not get on: neither a call of it nor what it was given may go
unseen for ever.

The time of a call counts from its beginning. An observer that fails and is tried again is
failing, not stuck.

What was given and is not acknowledged has a time of its own, across calls and the waits
between them. It counts from when the call returned that gave the oldest of it, and again each
time the oldest is acknowledged: acknowledgements that are late and keep coming are progress.
It begins again after an attempt that failed, too.

There is one timer for all calls and batches, which looks at the newest beginnings when it is
due: so a call sets none, and the last timer of a range that comes to rest is soon over.

Limits: nothing is ended here; ``observer.timeout`` ends calls, and nothing ends the other. Of
several calls at once (``observer.concurrency``) the last to begin counts.
"""

import asyncio
from collections.abc import Callable
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
        self._since = dict[Overdue, float]()
        self._overdue = set[Overdue]()
        self._look: asyncio.TimerHandle | None = None
        self._calls = 0

    def begin(self) -> None:
        """Let the time of a call count, until it ends."""
        self._calls += 1
        self._count("call")

    def end(self, error: BaseException | None = None) -> None:
        """A call has returned, or has ended with an error."""
        self._calls -= 1
        if not self._calls:
            self._since.pop("call", None)
        if error is None:
            self._over("call")
        elif isinstance(error, AttemptFailed):  # what was cut off has not come back
            self._overdue.clear()
            if "acknowledgement" in self._since:
                self._count("acknowledgement")

    def unacknowledged(self) -> None:
        """Let the time of what is not acknowledged count, if it does not yet."""
        if "acknowledgement" not in self._since:
            self._count("acknowledgement")

    def acknowledged(self, *, left: bool) -> None:
        """Count from now, or no more if nothing is left: the oldest was acknowledged."""
        if self._since.pop("acknowledgement", None) is None:
            return
        self._over("acknowledgement")
        if left:
            self._count("acknowledgement")

    def close(self) -> None:
        """Count nothing more: the observer is closed."""
        self._overdue.clear()
        self._since.clear()
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _count(self, what: Overdue) -> None:
        now = self._since[what] = self._loop.time()
        if self._look is None:
            self._look = self._loop.call_at(now + self._longest, self._look_now)

    def _look_now(self) -> None:
        self._look, now = None, self._loop.time()
        due = {what: since + self._longest for what, since in self._since.items()}
        for what in (x for x, at in due.items() if at <= now):
            self._become_overdue(what)
        ahead = [at for at in due.values() if at > now]
        if ahead:
            self._look = self._loop.call_at(min(ahead), self._look_now)

    def _become_overdue(self, what: Overdue) -> None:
        is_news = not self._overdue
        self._overdue.add(what)
        if is_news:
            self._report(what)

    def _over(self, what: Overdue) -> None:
        self._overdue.discard(what)
        if not self._overdue:
            self._returned()
