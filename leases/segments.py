"""Sets of keys, cut at all bounds that are known. No I/O, and no word of leases."""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from changefeed.feeds.feed import FeedRange

_Generation = tuple[int, int]
_NEVER: _Generation = (-1, 0)
"""Before that of any range."""


class Segments:
    """The keys between all bounds that are known, from the lowest to the highest.

    Sets of keys are marks, one for each segment, so thousands of ranges are compared with
    thousands at the speed of ``bytes``.
    """

    def __init__(self, ranges: Iterable[FeedRange]) -> None:
        self._bounds = sorted({y for x in ranges if x.high for y in (x.low, x.high)})
        self._places = {bound: n for n, bound in enumerate(self._bounds)}

    def _place(self, found: FeedRange) -> tuple[int, int]:
        """Return the segments of a range; none where its bounds are not known."""
        if not found.high:
            return 0, 0
        return self._places[found.low], self._places[found.high]

    def marked(self, ranges: Iterable[FeedRange]) -> bytearray:
        marks = bytearray(len(self._bounds))
        for x in ranges:
            self.mark(marks, x)
        return marks

    def mark(self, marks: bytearray, found: FeedRange) -> None:
        begin, end = self._place(found)
        marks[begin:end] = b"\1" * (end - begin)

    def any(self, marks: bytes | bytearray, found: FeedRange) -> bool:
        return 1 in marks[slice(*self._place(found))]

    def all(self, marks: bytearray, found: FeedRange) -> bool:
        return 0 not in marks[slice(*self._place(found))]

    def of(self, found: FeedRange) -> range:
        """Return the segments of a range."""
        return range(*self._place(found))

    def without(self, found: FeedRange, marks: bytearray) -> Sequence[int]:
        """Return the segments of a range that are not marked."""
        return [n for n in self.of(found) if not marks[n]]

    def latest(self, ranges: Iterable[FeedRange]) -> list[_Generation]:
        """Return the latest generation of each segment."""
        found = [_NEVER] * len(self._bounds)
        for x in sorted(ranges, key=attrgetter("generation")):
            begin, end = self._place(x)
            found[begin:end] = [x.generation] * (end - begin)
        return found

    def latest_of(self, latest: Sequence[_Generation], found: FeedRange) -> _Generation:
        return max(latest[slice(*self._place(found))], default=_NEVER)

    def spans(self, segments: Iterable[int]) -> Iterator[tuple[str, str]]:
        """Return the bounds of the keys of some segments, in order; what touches is one."""
        begin, end = -1, -1
        for n in segments:
            if n != end:
                if begin >= 0:
                    yield self._bounds[begin], self._bounds[end]
                begin = n
            end = n + 1
        if begin >= 0:
            yield self._bounds[begin], self._bounds[end]


def marked_in(marks: bytes | bytearray) -> Iterator[int]:
    return (n for n, marked in enumerate(marks) if marked)
