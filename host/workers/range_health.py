"""Whether the ranges that a host reads get on, as far as it has seen itself."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from changefeed.feeds.feed import RangeId


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeHealth:
    """Times are seconds since 1970; ``None`` for what has not happened.

    ``failing_since`` is the first failure of the observer since its last batch that was done,
    ``last_error`` the newest of them.
    """

    last_progress: float | None = None
    failing_since: float | None = None
    last_error: str | None = None


class RangeHealths:
    """The health of each range that is owned, in memory only."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._ranges: dict[RangeId, RangeHealth] = {}

    @property
    def ranges(self) -> Mapping[RangeId, RangeHealth]:
        return self._ranges

    def progressed(self, range_id: RangeId) -> None:
        self._ranges[range_id] = RangeHealth(last_progress=self._wall())

    def failed(self, range_id: RangeId, error: str) -> None:
        before = self._ranges.get(range_id, RangeHealth())
        since = self._wall() if before.failing_since is None else before.failing_since
        self._ranges[range_id] = replace(before, failing_since=since, last_error=error)

    def forget(self, range_id: RangeId) -> None:
        """Stop watching a range that is no longer owned."""
        self._ranges.pop(range_id, None)
