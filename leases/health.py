"""Whether the observer of a range gets on: kept in its lease, where other hosts look."""

import msgspec
from msgspec.structs import replace

from changefeed.runtime.printable import printable

_LONGEST_ERROR = 200
_LOOKED_AT = 10 * _LONGEST_ERROR


class RangeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are wall-clock seconds since 1970; ``None`` for what is not so, or never was.

    ``last_progress`` is when the observer was last done with a batch. ``failing_since`` is its
    first failure since then, ``last_error`` the newest, in one line. ``waiting`` is how many
    keys wait for another try while others go on. ``stuck_since`` is when a call began that is
    still running and takes longer than any should, or since when it has not acknowledged what
    it was given.
    """

    last_progress: float | None = None
    failing_since: float | None = None
    stuck_since: float | None = None
    last_error: str | None = None
    waiting: int = 0

    @property
    def troubles(self) -> tuple[float | None, float | None, bool]:
        """Since when it fails or is stuck, and whether keys wait: what others need to learn
        without delay.
        """
        return self.failing_since, self.stuck_since, self.waiting > 0

    @property
    def in_trouble(self) -> bool:
        return self.troubles != (None, None, False)

    def progressed(self, at: float) -> "RangeHealth":
        """Return from a batch: it fails no more, but on keys that wait. What was given before
        may still not be acknowledged.
        """
        if self.waiting:
            return replace(self, last_progress=at)
        return RangeHealth(last_progress=at, stuck_since=self.stuck_since)

    def waits(self, keys: int) -> "RangeHealth":
        """Have so many keys wait: with none, it fails no more."""
        failing = {} if keys else {"failing_since": None, "last_error": None}
        return replace(self, waiting=keys, **failing)

    def caught_up(self) -> "RangeHealth":
        """Have nothing left to do: there is no batch any more that it could fail on."""
        return RangeHealth(last_progress=self.last_progress)

    def failed(self, at: float, error: str) -> "RangeHealth":
        """Fail, or fail again. A call that has ended is not stuck."""
        since = at if self.failing_since is None else self.failing_since
        begin = error[:_LOOKED_AT]  # to look at each of millions would hold up the renewals
        line = " ".join(printable(begin).split())
        if len(line) > _LONGEST_ERROR:
            line = line[: _LONGEST_ERROR - 1] + "…"
        assert len(line) <= _LONGEST_ERROR, f"{len(line)} characters go into every renewal"
        return replace(self, failing_since=since, stuck_since=None, last_error=line)

    def stuck(self, since: float) -> "RangeHealth":
        return replace(self, stuck_since=since)

    def returned(self) -> "RangeHealth":
        """Have no call under way any more, well or not, and acknowledge again."""
        return replace(self, stuck_since=None)


NOTHING_KNOWN = RangeHealth()
