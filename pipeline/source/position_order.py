"""The positions of a feed as numbers: what planning computes with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from changefeed.feeds.feed import Position
from changefeed.pipeline.source.reader import FilePart, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionOrder:
    """How positions and sequences go together in any range of a feed.

    The functions are those of ``PositionTraits``. ``each`` is how many changes any transaction
    has: where it is known, distances count changes.
    """

    order: Callable[[Position], int]
    position: Callable[[int], Position]
    step: int = 1
    each: int | None = None
    beside: Callable[[Position, Position], Position] = lambda at, _: at

    def distance(self, begin: Position, end: Position) -> int:
        """Return how many transactions lie between two positions at the most."""
        return (self.order(end) - self.order(begin)) // self.step

    def before(self, end: Position, transactions: int) -> Position:
        """Return the position so many transactions before another one."""
        if not transactions:
            return end
        return self.position(self.order(end) - transactions * self.step)

    def around(self, slice_: Slice, parts: Sequence[FilePart]) -> Sequence[Slice]:
        """Return what of a slice is in none of some files, of a range of dense sequences."""
        edges = [self.order(slice_.start), *(y for x in parts for y in (x.after, x.end))]
        edges.append(self.order(slice_.end))
        return [
            replace(slice_, start=self.position(a), end=self.position(b), changes=b - a)
            for a, b in zip(edges[::2], edges[1::2], strict=True)
            if a < b
        ]

    def cut(self, slice_: Slice, changes: int) -> Sequence[Slice]:
        """Cut a slice into several of about so many transactions, and say how large each is:
        as if a transaction had one change, where no size is known.
        """
        each = self.each or slice_.each or 1
        begin, steps = self.order(slice_.start), self.distance(slice_.start, slice_.end)
        count = max(1, steps // changes)
        edges = [begin + steps * n // count * self.step for n in range(1, count)]
        between = [self.beside(self.position(x), slice_.end) for x in edges]
        marks = [slice_.start, *between, slice_.end]
        return [
            replace(slice_, start=a, end=b, changes=each * self.distance(a, b))
            for a, b in pairwise(marks)
        ]
