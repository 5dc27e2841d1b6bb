"""What a feed is: the values every part of the project speaks in, and the contract.

A feed is cut into ranges. Each range has its own order, and a position in it is a
position: text that only the feed which made it can read. Nothing here does I/O.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Generic, Literal, NewType

import msgspec
from typing_extensions import TypeVar

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.pauses import GrowingPauses
from changefeed.runtime.calls import Patience, in_time

T_co = TypeVar("T_co", default=Any, covariant=True)

RangeId = NewType("RangeId", str)
Position = NewType("Position", str)

StartAt = Literal["beginning", "now", "snapshot"] | datetime
"""Where to start before there is any position; a ``datetime`` must know its zone.

``snapshot`` is for a feed of all versions that keeps none from before its reader: the latest
version of every item, and then every change. Another feed refuses it.
"""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

MIN_TIME_US: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
MAX_TIME_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The commit times that calendars have, in the years 1 to 9999: no feed takes others."""

_WHOLE_ONLY: Final = "the ranges of this feed cannot be read in parts"

MAX_WAIT_FOR_NEWS: Final = 10.0
"""For how many seconds ``Feed.news`` waits at the most, where there are none."""


class Operation(enum.StrEnum):
    """What happened to the record; a feed that cannot recognize an insert says REPLACE.

    SNAPSHOT: nothing happened, the record was there when its reader began.
    """

    INSERT = "insert"
    REPLACE = "replace"
    DELETE = "delete"
    SNAPSHOT = "snapshot"


class Change(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """One insert, replace or delete. The ``value()`` of a ``Change[Order]`` is an ``Order``: an
    observer that is annotated so is given such changes.

    ``(range_id, sequence)`` names the change for good: it is the idempotence key. The range is
    the feed's own (``FeedRange.whole``), also where the change was read from a sub-range of it.
    ``sequence`` grows along its range; it need not be dense. A msgspec struct, made by the
    places of its fields, because a feed makes hundreds of thousands of these a second.

    ``unreadable`` says why the feed could not read the change, else it is ``None``. Such a
    change has what came as its ``body``, and perhaps no key or id. No observer is given it.
    """

    range_id: RangeId
    sequence: int
    key: str
    id: str
    operation: Operation
    body: bytes  # JSON text, UTF-8; empty where a delete carries no image
    committed_us: int  # microseconds since 1970, UTC
    previous: bytes | None = None  # the image before the change, where the feed keeps it
    unreadable: str | None = None

    @property
    def committed_at(self) -> datetime:
        """The commit time; where no calendar has it, the first or the last that there is."""
        return _EPOCH + timedelta(microseconds=_in_calendar(self.committed_us))

    def value(self) -> T_co:
        """Parse ``body``; ``None`` for a delete without an image."""
        found: T_co = msgspec.json.decode(self.body or b"null")
        return found


def unreadable_text(change: Change) -> str:
    """Say which change cannot be read, why, and what to do."""
    return (
        f"the change at sequence {change.sequence} of range {change.range_id!r} cannot be "
        f"read: {change.unreadable}. Mend the item {change.id!r} in its container, or let the "
        f"change be put aside (observer.on_failure = 'dead-letter'), and resume the range"
    )


def _in_calendar(time_us: int) -> int:
    return min(max(time_us, MIN_TIME_US), MAX_TIME_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRange:
    """A part of the feed with its own order. Every call of a feed is given the whole value.

    ``low`` and ``high`` bound the hashes of its keys (low inclusive), in the feed's own
    notation, which sorts as text; ``high`` is empty where the bounds are not known.
    ``parents`` are the ranges that held these keys before it; a feed may name them all, up
    to the first, and then some of them held other keys of theirs.

    ``of`` is the range of the feed that this one is a sub-range of, ``None`` for those that
    the feed has itself. ``generation`` grows along each key: first the depth in the feed, then
    how often the range was cut or merged without the feed.
    """

    id: RangeId
    low: str = ""
    high: str = ""
    parents: tuple[RangeId, ...] = ()
    of: RangeId | None = None
    generation: tuple[int, int] = (0, 0)

    @property
    def whole(self) -> RangeId:
        """The range of the feed that it is, or is a sub-range of."""
        return self.of or self.id

    def shares_keys_with(self, other: "FeedRange") -> bool:
        """Whether both are known to hold some key."""
        return self.low < other.high and other.low < self.high

    def overlaps(self, other: "FeedRange") -> bool:
        """Whether it is the other, or is known to share a key with it."""
        return self.id == other.id or self.shares_keys_with(other)

    def covers(self, other: "FeedRange") -> bool:
        """Whether it is known to hold all keys of the other."""
        return self.low <= other.low < other.high <= self.high


class LateChanges(Sequence[Change]):  # noqa: PLW1641 - a list has no hash either
    """So many changes, made when one of them is first looked at: ``make`` cannot fail.

    Pages of many ranges wait for their observers. As bytes they are small while they wait, and
    the changes are still in the caches of the processor when their observer is done.
    """

    def __init__(self, count: int, make: Callable[[], Iterable[Change]]) -> None:
        self._count = count
        self._make = make

    @cached_property
    def made(self) -> Sequence[Change]:
        made = [*self._make()]
        del self._make
        assert len(made) == self._count, f"{len(made)} changes are made, of {self._count}"
        return made

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Change]:
        return iter(self.made)

    def __getitem__(self, at: Any) -> Any:
        return self.made[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some changes of one range, in order, and the position after the last of them.

    No changes means that the end was reached for now; the position still counts. A feed may
    leave it to who looks at the changes first to make them (``LateChanges``).
    """

    changes: Sequence[Change]
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A range that takes over from an ended one, and where to start reading it."""

    range: FeedRange
    start: Position


class RangeEnded(Exception):
    """The range was split, merged or closed, and has been read to its very end."""

    def __init__(self, range_id: RangeId, children: tuple[Child, ...]) -> None:
        super().__init__(range_id, children)  # args as given, so that it pickles
        self.range_id = range_id
        self.children = children

    def __str__(self) -> str:
        names = ", ".join(x.range.id for x in self.children) or "nothing"
        return f"range {self.range_id!r} has ended; it goes on in {names}"


class Feed(ABC):
    """An ordered stream of changes, cut into ranges.

    Many tasks read at once, also the same range. Every method raises
    ``FeedUnavailable`` when it may be asked again later, ``FeedRefused`` when that
    cannot help (``RangeRefused``, a kind of it, where only this range is concerned), and
    ``RangeUnknown`` for a range that the feed does not have. A caller may know no more of a
    range than its id; a feed may then refuse what only bounds would show.
    """

    children_inherit_positions: bool = False
    """Whether a range ends where its reader is as soon as the feed has split or merged it, and
    is not listed any more: those that hold its keys by then go on from there."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What no other feed has, not even the next one at the same address; never empty.

        With it, ``(range_id, sequence)`` names a change among those of all feeds. A store that
        can be read in several modes has other changes in each, and so another identity.
        """

    @property
    def request_units(self) -> float | None:
        """What its requests have cost since it was opened, where a service charges for them."""
        return None

    @abstractmethod
    async def ranges(self) -> Sequence[FeedRange]:
        """Return every range that can still be read, parents before their children.

        A feed may leave out an ancestor once its changes can be read through its
        children.
        """

    @abstractmethod
    async def start(self, found: FeedRange, at: StartAt) -> Position:
        """Return the position of a start: it stays where it is, whatever is written later.

        For a time: before the first change that was committed at or after it. Raise
        ``FeedRefused`` for a start that this feed does not have.
        """

    @abstractmethod
    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        """Return the next changes after a position, about ``limit`` (at least 1).

        There may be fewer although more are there: only no changes at all mean that the
        end was reached for now. The same ``after`` gives the same changes again. Raise
        ``RangeEnded`` where nothing will ever follow, ``RangeRefused`` for a wrong position.
        """

    @abstractmethod
    def position_after(self, change: Change) -> Position:
        """Return the position that leaves out ``change`` and all before it.

        Where the feed cannot stop between changes of one transaction, it is the position
        before that transaction: too early is a repetition, too late would be a loss.
        """

    # What a feed may answer for many ranges in one call, at about the cost of one range. Both
    # raise as the methods above do, but for what concerns single ranges.

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        """Return how many changes (or sequences, if it cannot count them) lie after positions.

        A range is left out where that cannot be said: ``read`` may say why. By default nothing
        is known of any.
        """
        del at
        return {}

    async def news(self, at: Mapping[FeedRange, Position]) -> Collection[RangeId]:
        """Return the ranges that have something after these positions.

        That is a change, their end, or an error that ``read`` raises. None that had some when
        the feed was asked is left out; more than have some may be named, and each is read.
        Where none has, the feed may wait for a first, 10 s at the most;
        the call may be cancelled, to ask about more. Hosts ask once in ``feed.poll_interval``.

        By default each is named when a pause is over that grows while its position stands
        still (``pauses``). A feed whose ``read`` waits for changes by itself names all.
        """
        return self._pauses.over(at)

    @cached_property
    def _pauses(self) -> GrowingPauses:
        return GrowingPauses()

    # Sub-ranges: what follows is for a feed whose ranges can be read in parts of their keys.
    #
    # A sub-range is a range as any other, but none that ``ranges`` lists, and has no parents.
    # A position in a range is one in each sub-range as well: it passes over what lies before
    # it, and nothing else. A sub-range ends with its range, and goes on in those children of
    # it that share keys with it, which name the range as their parent, and not its sub-ranges.
    # Where ``children_inherit_positions``, it ends only where its keys come apart.

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        """Cut the keys of a range into so many parts (at least 2), of about as many keys each.

        They come by their bounds, without a gap. Raise ``FeedRefused`` for a range that cannot
        be cut so.
        """
        raise FeedRefused(f"range {found.id!r} cannot be split into {into}: {_WHOLE_ONLY}")

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        """Return the part that has the keys of some, which come by their bounds, without a gap.

        Raise ``FeedRefused`` where no position can be one in all of them, as ``ranges`` last
        found it.
        """
        names = ", ".join(x.id for x in parts)
        raise FeedRefused(f"ranges {names} cannot be merged: {_WHOLE_ONLY}")

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        """Return the part of a range that holds the keys between some bounds."""
        raise FeedRefused(f"{low} to {high} of {found.id!r} cannot be read: {_WHOLE_ONLY}")


T = TypeVar("T")


class BoundedFeed(Feed):
    """Wraps a feed: a call that takes longer than ``timeout`` seconds raises
    ``FeedUnavailable``; one that waits for news may do so before that. So does a call that the
    server refuses, as long as there is ``patience`` for it.
    """

    def __init__(
        self, feed: Feed, *, timeout: float = 60.0, patience: Patience | None = None
    ) -> None:
        self._feed = feed
        self._timeout = timeout
        self._patience = patience or Patience(0)
        self.children_inherit_positions = feed.children_inherit_positions

    @property
    def identity(self) -> str:
        return self._feed.identity

    @property
    def request_units(self) -> float | None:
        return self._feed.request_units

    async def ranges(self) -> Sequence[FeedRange]:
        return await self.bounded("ranges", self._feed.ranges())

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        return await self.bounded("settle", self._feed.start(found, at), of=found.id)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        call = self._feed.read(found, after, limit)
        return await self.bounded("read", call, of=found.id)

    def position_after(self, change: Change) -> Position:
        return self._feed.position_after(change)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return await self.bounded("lags", self._feed.lags(at))

    async def news(self, at: Mapping[FeedRange, Position]) -> Collection[RangeId]:
        longest = MAX_WAIT_FOR_NEWS + self._timeout  # it waits for news, and then answers
        return await self.bounded("news", self._feed.news(at), within=longest)

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        return self._feed.split(found, into)

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        return self._feed.merge(parts)

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        return self._feed.sub_range(found, low, high)

    def bounded(
        self,
        name: str,
        call: Awaitable[T],
        *,
        of: RangeId | None = None,
        within: float | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Bound a call to the feed, also one by another contract of it."""
        seconds = self._timeout if within is None else within
        answer = in_time(call, seconds, who="the feed", name=name, unavailable=FeedUnavailable)
        return self._patience.ask((name, of), answer, FeedUnavailable)
