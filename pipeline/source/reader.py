"""What a planner and its tasks need of a feed of any kind.

Two implementations: ``CollectionAccess`` computes positions of an event log or a collection
and reads columns; ``FeedAccess`` (``access_feed``) does with the contract of feeds alone.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from changefeed.feeds.feed import Change, Child, FeedRange, Position, RangeId, StartAt
from changefeed.pipeline.source.offsets import Mark, Offset

if TYPE_CHECKING:
    import pyarrow as pa  # commands import this, and need no Spark

    from changefeed.feeds.raw_pages import Rows
    from changefeed.log.format.block_format import Columns
    from changefeed.pipeline.source.position_order import PositionOrder


NO_ENDS: Final[Mapping[RangeId, Position]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """What follows a position: about how many changes, and where the range is now; or the
    children after the end.

    ``lag`` counts from the first change that is there, up to ``end``, which is ``None`` where
    nothing is. ``each`` is how many changes the first transaction has, where that was seen.
    ``children`` is ``None`` as long as the range may get more changes, and empty where an
    ended range has none.
    """

    lag: int
    end: Position | None = None
    each: int | None = None
    children: tuple[Child, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A slice of one range: the changes after ``start`` up to ``end``.

    ``changes`` is about how many they are, once the slice was cut. ``each`` is how many a
    transaction has, where that is known without reading them. ``feed`` is what the feed must be
    known by, as in an offset.
    """

    range_id: RangeId
    start: Position
    end: Position
    generation: int = 0
    low: str = ""
    high: str = ""
    changes: int = 0
    each: int | None = None
    feed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Changes of a range with ``after < sequence <= end``, all of which are in one file of
    Parquet, which has ``records`` of all ranges.
    """

    path: Path
    range_id: RangeId
    after: int
    end: int
    records: int


T = TypeVar("T", str, tuple[int, int])

Block: TypeAlias = "Columns | Rows | Sequence[Change] | pa.RecordBatch"
"""Changes of a slice: in columns where the feed has them so, or one by one."""


def some_between(hashes: Sequence[T], low: T, high: T) -> bool:
    """Whether one of some hashes, which are sorted, lies in [low, high)."""
    at = bisect_left(hashes, low)
    return at < len(hashes) and hashes[at] < high


class Access(Protocol):
    """How a planner and its tasks read a feed. One thread calls it, and may block.

    Raises what feeds raise, but for ``RangeEnded``. Asks about many ranges at once, so that
    planning takes about as long for many as for one.
    """

    children_inherit_positions: bool
    """Whether children take over the positions of ended ranges, whose bounds the feed
    forgets: marks must then carry them. See ``Feed``."""

    @property
    def positions(self) -> "PositionOrder":
        """How positions of this feed are computed with."""
        ...

    def identity(self) -> str:
        """Return what the feed is to be known by, if its positions do not say it."""
        ...

    def check_feed(self, offset: Offset) -> None:
        """Raise ``FeedRefused`` if an offset is of another feed than this."""
        ...

    def ranges(self) -> Sequence[FeedRange]:
        """Return the ranges that are wanted, parents before their children."""
        ...

    def starts(
        self, names: Collection[RangeId], start: StartAt
    ) -> Mapping[RangeId, Position]: ...

    def look(
        self,
        marks: Mapping[RangeId, Mark],
        ends: Mapping[RangeId, Position] = NO_ENDS,
    ) -> Mapping[RangeId, Availability]:
        """Return what follows each of these positions; up to ``ends``, where they are named and
        to ask for the end costs something.
        """
        ...

    def read(self, slice_: Slice) -> Iterator[tuple[RangeId, Block]]:
        """Yield the changes of a slice, in order, each with the range of the slice.

        They are the planned ones, also after the range has split or merged. The first are
        asked for by the call, and come in while the caller reads another slice. What it does
        not take is cancelled by ``close``.
        """
        ...

    def holding(self, slices: Sequence[Slice], keys: Collection[str]) -> Sequence[Slice]:
        """Return the slices that may have changes of some keys; all, where that is unknown."""
        ...

    def close(self) -> None: ...
