"""Which ranges to read again, where only reading shows whether there is something.

A range is read when it is asked about for the first time, then when it is asked about for the
second time since, the third, and so on up to the fifth; from the beginning again once its
position has moved. So an idle range costs a fifth of the requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from changefeed.feeds.feed import FeedRange, Position, RangeId

_MAX_PAUSE: Final = 5
_FORGOTTEN: Final = 1000  # so many questions after the last one about a range


@dataclass(slots=True, kw_only=True)
class _Pause:
    after: "Position"
    length: int = 1
    left: int = 1
    asked: int = 0


class GrowingPauses:
    """Of the ranges of one feed."""

    def __init__(self) -> None:
        self._pauses: dict[RangeId, _Pause] = {}
        self._asked = 0

    def over(self, at: Mapping["FeedRange", "Position"]) -> "Sequence[RangeId]":
        """Return the ranges whose pause is over with this question."""
        self._asked += 1
        if self._asked % _FORGOTTEN == 0:
            oldest = self._asked - _FORGOTTEN
            self._pauses = {x: y for x, y in self._pauses.items() if y.asked >= oldest}
        return [found.id for found, after in at.items() if self._is_over(found.id, after)]

    def _is_over(self, range_id: "RangeId", after: "Position") -> bool:
        pause = self._pauses.get(range_id)
        if pause is None or pause.after != after:
            pause = self._pauses[range_id] = _Pause(after=after)
        pause.asked = self._asked
        pause.left -= 1
        assert 0 <= pause.left < _MAX_PAUSE, f"{range_id!r} would be read in {pause.left}"
        if pause.left:
            return False
        pause.length = pause.left = min(pause.length + 1, _MAX_PAUSE)
        return True
