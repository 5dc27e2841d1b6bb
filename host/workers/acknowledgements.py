"""Which delivered changes are done: the position below which everything is.

Changes may be acknowledged one by one and in any order, or all up to one of them. Only
the unbroken beginning counts: its last change is the low watermark.
"""

from collections import deque
from collections.abc import Sequence

from changefeed.feeds.feed import Change


class Acknowledgements:
    """What one observer was given that is not yet known to be done. No I/O."""

    def __init__(self) -> None:
        self._open: deque[Change] = deque()
        self._done: set[int] = set()  # sequences of open changes behind a gap
        self._last = -1

    @property
    def unacknowledged(self) -> int:
        """How many delivered changes are at or behind the first that is not done."""
        return len(self._open)

    def deliver(self, changes: Sequence[Change]) -> None:
        """Count ``changes``, in order and later than all before, as in hand.

        What is delivered again after a failure is in hand once.
        """
        assert changes, "an empty batch is nothing to acknowledge"
        if changes[0].sequence <= self._last:
            changes = [x for x in changes if x.sequence > self._last]
        self._open.extend(changes)
        if changes:
            self._last = changes[-1].sequence

    def all_done(self) -> int:
        """Count everything that was delivered as done; return how much was not before."""
        changes = len(self._open)
        self._open.clear()
        self._done.clear()
        return changes

    def was_delivered(self, change: Change) -> bool:
        return change.sequence <= self._last

    def done_up_to(self, change: Change) -> Change | None:
        """Count ``change`` and all before it as done; return the watermark if it moved."""
        moved = None
        while self._open and self._open[0].sequence <= change.sequence:
            moved = self._pop()
        moved = self._follow() or moved
        assert not self._open or self._open[0].sequence > change.sequence, (
            f"{self._open[0].sequence} is open, and all up to {change.sequence} is done"
        )
        return moved

    def done(self, change: Change) -> Change | None:
        """Count ``change`` alone as done; return the watermark if it moved."""
        if not self._open or change.sequence < self._open[0].sequence:
            return None
        self._done.add(change.sequence)
        return self._follow()

    def _follow(self) -> Change | None:
        """Pass over what was acknowledged early, now that nothing before it is missing."""
        moved = None
        while self._open and self._open[0].sequence in self._done:
            moved = self._pop()
        return moved

    def _pop(self) -> Change:
        change = self._open.popleft()
        self._done.discard(change.sequence)
        return change
