"""What the observer is waited for: neither a call of it nor what it was given may go unseen for
ever.

The time of a call counts from its beginning. An observer that fails and is tried again is
failing, not stuck. A call that was cut off has not come back.

What was given and is not acknowledged has a time of its own, across calls and the waits
between them. It counts from when the call returned that gave the oldest of it, and again each
time the oldest is acknowledged: acknowledgements that are late and keep coming are progress.
It begins again after an attempt that failed, too.

Nothing here has a timer: each listing looks.

Limits: nothing is ended here; ``observer.timeout`` ends calls, and nothing ends the other. Of
several calls at once (``observer.concurrency``) the last to begin counts.
"""

import asyncio
from operator import itemgetter
from typing import Literal, NamedTuple

from changefeed.observers.errors import AttemptFailed

_What = Literal["call", "acknowledgement"]


class Overdue(NamedTuple):
    """What is waited for, and for how many seconds by now."""

    what: _What
    seconds: float


class CallWatch:
    """Of the observer of one range. What takes ``longest`` seconds is overdue."""

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
