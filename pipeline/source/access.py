"""What a planner and its tasks need of a feed, whichever it is.

Two implementations: ``LogAccess`` (``access_log``) computes positions of an event log and
reads columns; ``FeedAccess`` (``access_feed``) does with the contract of feeds alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from feeds.eventlog.columns import Columns
from feeds.feed import Change, Continuation, FeedRange, RangeId, StartAt, Successor

from .offsets import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What lies behind a position: about how many changes, or what goes on after the end.

    ``successors`` is ``None`` as long as the range may get more changes, and empty where
    nothing goes on.
    """

    lag: int
    successors: tuple[Successor, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A piece of one range: the changes after ``start`` up to ``end``.

    ``changes`` is how many they are, where that is known without reading them.
    """

    range_id: RangeId
    start: Continuation
    end: Continuation
    generation: int = 0
    low: str = ""
    high: str = ""
    changes: int | None = None


Piece = Columns | Sequence[Change]
"""Changes of a slice: in columns where the feed has them so, or one by one."""


class Access(Protocol):
    """Reached from one thread, which has nothing else to do meanwhile.

    Raises what feeds raise, but for ``RangeEnded``.
    """

    keeps_bounds: bool
    """Whether marks must carry bounds, because the feed forgets those of gone ranges."""

    def recall(self, marks: Mapping[RangeId, Mark]) -> None:
        """Learn of ranges from an offset before they are asked for."""
        ...

    def ranges(self) -> Sequence[FeedRange]: ...

    def settle(self, range_id: RangeId, start: StartAt) -> Continuation: ...

    def look(self, marks: Mapping[RangeId, Mark]) -> Mapping[RangeId, Sight]:
        """Tell what lies behind each of these positions."""
        ...

    def order(self, position: Continuation) -> int:
        """Return the sequence that no change before this position exceeds."""
        ...

    def advance(
        self, range_id: RangeId, after: Continuation, count: int | None, until: int | None
    ) -> Continuation:
        """Return the position ``count`` changes further on, or less if there are fewer.

        It does not pass the sequence ``until``. Only where the feed cannot stop within a
        transaction that alone is longer than ``count``, it lies behind that transaction.
        """
        ...

    def cut(self, piece: Slice, changes: int) -> Sequence[Slice]:
        """Cut a slice into several of about so many changes, where that can be done."""
        ...

    def read(self, piece: Slice) -> Iterator[tuple[RangeId, Piece]]:
        """Yield the changes of a slice, in order, each with the range it was found in."""
        ...

    def close(self) -> None: ...
