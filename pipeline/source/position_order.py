"""The positions of a feed as numbers: what planning computes with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from changefeed.feeds.backend import PositionTraits
from changefeed.feeds.feed import Position, RangeId
from changefeed.pipeline.source.reader import FilePart, Slice, Step, StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionOrder:
    """How positions and sequences go together in any range of a feed.

    ``order`` returns the sequence that no change before a position exceeds, ``position``
    one behind a sequence. Transactions lie ``step`` sequences apart, or more, and have at
    the most ``largest`` changes.
    """

    order: Callable[[Position], int]
    position: Callable[[int], Position]
    step: int = 1
    largest: int = 1

    @classmethod
    def of(cls, traits: PositionTraits) -> "PositionOrder":
        return cls(
            order=traits.order,
            position=traits.position,
            step=traits.step,
            largest=traits.largest,
        )

    def distance(self, begin: Position, end: Position) -> int:
        """Return how many transactions lie between two positions at the most."""
        return (self.order(end) - self.order(begin)) // self.step

    def advanced(
        self, steps: Mapping[RangeId, Step], ends: Mapping[RangeId, int]
    ) -> Mapping[RangeId, StepResult]:
        """Return where steps lead in ranges whose sequences are dense and end so."""
        found = {}
        for name, step in steps.items():
            done = self.order(step.after)
            goals = [ends[name]]
            if step.count is not None:
                goals.append(done + step.count)
            if step.until is not None:
                goals.append(self.order(step.until))
            end = max(done, min(goals))
            found[name] = StepResult(at=self.position(end), changes=end - done)
        return found

    def around(self, piece: Slice, parts: Sequence[FilePart]) -> Sequence[Slice]:
        """Return what of a slice is in none of some files, of a range of dense sequences."""
        edges = [self.order(piece.start), *(y for x in parts for y in (x.after, x.end))]
        edges.append(self.order(piece.end))
        return [
            replace(piece, start=self.position(a), end=self.position(b), changes=b - a)
            for a, b in zip(edges[::2], edges[1::2], strict=True)
            if a < b
        ]

    def cut(self, piece: Slice, changes: int) -> Sequence[Slice]:
        """Cut a slice into several of about so many transactions."""
        begin, steps = self.order(piece.start), self.distance(piece.start, piece.end)
        count = max(1, steps // changes)
        edges = [begin + steps * n // count * self.step for n in range(1, count)]
        marks = [piece.start, *map(self.position, edges), piece.end]
        return [
            replace(piece, start=a, end=b, changes=self.distance(a, b))
            for a, b in pairwise(marks)
        ]
