"""Whether the observer of a range gets on: kept in its lease, where other hosts look."""

import msgspec
from msgspec.structs import replace

from changefeed.runtime.printable import one_line

MAX_TEXT = 200
"""Characters of a key, or of an error: they go into every renewal."""


class WaitingKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key that waits, and its first change that is not done: that has failed in ``tries``
    calls, the last time with ``error``, and is tried again at ``next_try``, in wall-clock
    seconds since 1970. It is ``None`` while the observer fails on everything. ``key`` and
    ``error`` are one line each.
    """

    key: str
    sequence: int
    tries: int
    error: str
    next_try: float | None = None


class RangeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are wall-clock seconds since 1970; ``None`` for what is not so, or never was.

    ``last_progress`` is when the observer was last done with a batch. ``failing_since`` is its
    first failure since then, ``last_error`` the newest, in one line. ``waiting`` is how many
    keys wait for another try while others go on, ``oldest`` the one that waits the longest.
    ``stuck_since`` is when a call began that is still running and takes longer than any should,
    or since when it has not acknowledged what it was given.
    """

    last_progress: float | None = None
    failing_since: float | None = None
    stuck_since: float | None = None
    last_error: str | None = None
    waiting: int = 0
    oldest: WaitingKey | None = None

    @property
    def problems(self) -> tuple[float | None, float | None, WaitingKey | None]:
        """Since when it fails or is stuck, and which key has waited longest: what others need
        to learn without delay.
        """
        return self.failing_since, self.stuck_since, self.oldest

    @property
    def has_problem(self) -> bool:
        return self.problems != (None, None, None)

    def progressed(self, at: float) -> "RangeHealth":
        """Return from a batch: it fails no more, but on keys that wait. What was given before
        may still not be acknowledged.
        """
        if self.waiting:
            return replace(self, last_progress=at)
        return RangeHealth(last_progress=at, stuck_since=self.stuck_since)

    def waits(self, keys: int, oldest: WaitingKey | None) -> "RangeHealth":
        """Have so many keys wait: with none, it fails no more."""
        assert (keys > 0) == (oldest is not None), f"{oldest} waits, of {keys} keys"
        failing = {} if keys else {"failing_since": None, "last_error": None}
        return replace(self, waiting=keys, oldest=oldest, **failing)

    def caught_up(self) -> "RangeHealth":
        """Have nothing left to do: there is no batch any more that it could fail on."""
        return RangeHealth(last_progress=self.last_progress)

    def failed(self, at: float, error: str) -> "RangeHealth":
        """Fail, or fail again. A call that has ended is not stuck."""
        since = at if self.failing_since is None else self.failing_since
        line = one_line(error, MAX_TEXT)
        return replace(self, failing_since=since, stuck_since=None, last_error=line)

    def stuck(self, since: float) -> "RangeHealth":
        return replace(self, stuck_since=since)

    def returned(self) -> "RangeHealth":
        """Have no call under way any more, well or not, and acknowledge again."""
        return self if self.stuck_since is None else replace(self, stuck_since=None)


NOTHING_KNOWN = RangeHealth()
