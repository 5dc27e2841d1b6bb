"""Who creates a lease again that was deleted: the host that read its range, while it lives.

That host alone knows the last checkpoint. Another one would begin the range at ``feed.start``:
changes would come again, or, from *now* on, those that were written before would not come. So
who has seen the lease, and not its checkpoint, leaves it to others for as long as a dead owner
would have kept it.

Limits: a host that has never seen the lease does not know that there was one.
"""

from collections.abc import Collection
from math import inf

from changefeed.feeds.feed import RangeId
from changefeed.leases.remembering import LeaseMemory
from changefeed.runtime.clock import Clock


class DeletedLeases:
    """Which leases one host leaves to others, for ``patience`` seconds on ``clock``."""

    def __init__(self, memory: LeaseMemory, *, patience: float, clock: Clock) -> None:
        self._memory = memory
        self._patience = patience
        self._clock = clock
        self._missing_since: dict[RangeId, float] = {}

    def left_to_their_readers(self, missing: Collection[RangeId]) -> set[RangeId]:
        """Return which of the leases that are missing now are not to be created here yet."""
        now = self._clock()
        self._missing_since = {
            x: self._missing_since.get(x, now)
            for x in missing
            if not self._memory.knows_start_of(x)
        }
        assert all(x <= now for x in self._missing_since.values()), (
            f"missing since {self._missing_since}, and it is {now}"
        )
        return {x for x, since in self._missing_since.items() if now - since < self._patience}

    @property
    def due_in(self) -> float:
        """In how many seconds the first of them is to be created here, if it is not there."""
        first = min(self._missing_since.values(), default=inf)
        return max(0.0, first + self._patience - self._clock())
