"""A feed inside one process: real, ordered, and gone when the process ends.

Keys are hashed onto the numbers from 0 to 2**32, and each open range holds an interval
of them. A range that is split, merged or closed by a new era takes no more changes; what
goes on with its keys are fresh ranges with it as their parent. Nothing is ever forgotten,
so memory grows with what is appended.

A range can be read in parts of its hashes (``memory_parts``), each with the sequences of the
range.

Everything is deterministic: ids are counted, time comes from ``clock``, and every read
gives the event loop exactly one turn. The methods that change the feed are plain ones and
take effect at once. Not safe to change from several threads.
"""

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NoReturn
from uuid import uuid4

from changefeed.feeds import memory_parts
from changefeed.feeds.backend import FeedBackend, OpenOptions
from changefeed.feeds.errors import FeedRefused, RangeRefused, RangeUnknown
from changefeed.feeds.feed import (
    MAX_TIME_US,
    MIN_TIME_US,
    Change,
    Child,
    Feed,
    FeedRange,
    Operation,
    Page,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.feeds.timestamps import start_us
from changefeed.runtime.backends import Address

_HASHES = 2**32


@dataclass(kw_only=True, eq=False)
class _Range:
    """One range: the interval of hashes ``[low, high)``, and its changes in order.

    ``latest`` holds, for each change, the latest commit time up to it. It never falls,
    even where commit times do, so a time can be found in it by bisection.
    """

    id: RangeId
    low: int
    high: int
    parents: tuple[RangeId, ...] = ()
    depth: int = 0
    changes: list[Change] = field(default_factory=list)
    latest: list[int] = field(default_factory=list)
    children: tuple[RangeId, ...] | None = None  # None: still open

    def seen_from_outside(self) -> FeedRange:
        return FeedRange(
            id=self.id,
            low=memory_parts.bound(self.low),
            high=memory_parts.bound(self.high),
            parents=self.parents,
            generation=(self.depth, 0),
        )


class MemoryFeed(Feed):
    """A feed for one process. Not a test double: it keeps the whole contract.

    ``ranges`` is how many ranges to begin with (named r0, r1, ...), or their names. They
    share the hashes evenly. ``clock`` gives wall-clock seconds for commit times.
    """

    def __init__(
        self, ranges: int | Iterable[str] = 1, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._identity = uuid4().hex  # of no consequence to the order of anything
        self._counted = 0
        self._ranges: dict[RangeId, _Range] = {}
        self._holders: list[_Range] = []  # the open ranges, by their hashes
        if isinstance(ranges, int):
            ranges = [self._fresh_name() for _ in range(ranges)]
        self._open(0, _HASHES, [RangeId(name) for name in ranges])

    # What a reader calls: the contract.

    @property
    def identity(self) -> str:
        return self._identity

    async def ranges(self) -> Sequence[FeedRange]:
        await asyncio.sleep(0)
        return [found.seen_from_outside() for found in self._ranges.values()]

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        await asyncio.sleep(0)
        held = self._range(found.id)
        time_us = start_us(at)
        if time_us is None:
            return _position(0 if at == "beginning" else len(held.changes))
        return _position(bisect_left(held.latest, time_us))

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        assert limit > 0, "a page holds at least one change"
        await asyncio.sleep(0)
        held = self._range(found.id)
        begin = _sequence(held, found.id, after)
        changes = held.changes[begin : begin + limit]
        if found.id != held.id:
            changes = self._in_part(held, found.id, begin, limit)
        if changes:
            return Page(changes=changes, position=_position(changes[-1].sequence))
        if held.children is not None:
            raise RangeEnded(found.id, self._children(found.id, held.children))
        return Page(changes=[], position=_position(len(held.changes)))

    def position_after(self, change: Change) -> Position:
        return _position(change.sequence)

    async def news(self, at: Mapping[FeedRange, Position]) -> Collection[RangeId]:
        await asyncio.sleep(0)
        return [x.id for x, after in at.items() if self._has_news(x.id, after)]

    def _has_news(self, range_id: RangeId, after: Position) -> bool:
        try:
            found = self._range(range_id)
        except RangeUnknown:
            return True  # its reader finds out
        return found.children is not None or after != _position(len(found.changes))

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        await asyncio.sleep(0)
        lags: dict[RangeId, int] = {}
        for found, after in at.items():
            with suppress(RangeUnknown, RangeRefused):
                held = self._range(found.id)
                lags[found.id] = len(held.changes) - _sequence(held, found.id, after)
        return lags

    # Parts of ranges.

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        return memory_parts.cut(found, into)

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        return memory_parts.joined(parts)

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        return memory_parts.part_between(found, low, high)

    # What a producer calls.

    def append(
        self,
        key: str,
        body: bytes = b"",
        *,
        id: str | None = None,  # noqa: A002 - the name of the field it fills
        operation: Operation = Operation.INSERT,
        previous: bytes | None = None,
        committed_us: int | None = None,
        range_id: RangeId | None = None,
    ) -> Change:
        """Add a change to the open range of its key, or to the one named; return it.

        Naming a range is for stories that need a certain one: order by key then is the
        caller's business. Raise ``ValueError`` if the range takes no more changes, or for a
        commit time that no calendar has.
        """
        if committed_us is not None and not MIN_TIME_US <= committed_us <= MAX_TIME_US:
            raise ValueError(f"{committed_us} µs since 1970 lies outside the years 1 to 9999")
        found = self._holder_of(key) if range_id is None else self._open_range(range_id)
        now = int(self._clock() * 1_000_000) if committed_us is None else committed_us
        change = Change(
            range_id=found.id,
            sequence=len(found.changes) + 1,
            key=key,
            id=key if id is None else id,
            operation=operation,
            body=body,
            committed_us=now,
            previous=previous,
        )
        found.changes.append(change)
        found.latest.append(max(now, found.latest[-1]) if found.latest else now)
        return change

    # What changes the ranges.

    def split_range(self, range_id: RangeId) -> tuple[FeedRange, FeedRange]:
        """End a range; two fresh ones share its hashes in halves."""
        low, high = self.close(range_id, 2)
        return low, high

    def merge_ranges(self, a: RangeId, b: RangeId) -> FeedRange:
        """End two neighbours; one fresh range holds the hashes of both."""
        first, second = sorted((self._open_range(a), self._open_range(b)), key=lambda x: x.low)
        if first.high != second.low:
            raise ValueError(f"ranges {a!r} and {b!r} are not neighbours: name two that touch")
        (merged,) = self._replace((first, second), 1)
        return merged

    def close(self, range_id: RangeId, children: int = 1) -> tuple[FeedRange, ...]:
        """End one range; so many fresh ones share its hashes. With 0, nothing goes on."""
        return self._replace((self._open_range(range_id),), children)

    def begin_era(self, ranges: int) -> tuple[FeedRange, ...]:
        """End every open range; so many fresh ones share all hashes.

        A fresh range has as parents all those that held some of its hashes, and an ended
        one goes on in all that took some of its own.
        """
        if not self._holders:
            raise ValueError("every range was closed for good: there is nothing to go on from")
        return self._replace(tuple(self._holders), ranges)

    def _replace(self, closing: Sequence[_Range], count: int) -> tuple[FeedRange, ...]:
        """Put ``count`` fresh ranges in the place of some, given from low to high."""
        names = [self._fresh_name() for _ in range(count)]
        opened = self._open(closing[0].low, closing[-1].high, names)
        for new in opened:
            new.parents = tuple(old.id for old in closing if _overlap(old, new))
            new.depth = 1 + max(old.depth for old in closing if _overlap(old, new))
        for old in closing:
            old.children = tuple(new.id for new in opened if _overlap(old, new))
            self._holders.remove(old)
        return tuple(new.seen_from_outside() for new in opened)

    def _open(self, low: int, high: int, names: Sequence[RangeId]) -> list[_Range]:
        """Share an interval of hashes evenly among fresh ranges with these names."""
        count = len(names)
        if count > high - low:
            raise ValueError(f"{high - low} hashes cannot be shared by {count} ranges")
        if len({*names, *self._ranges}) < count + len(self._ranges):
            raise ValueError("two ranges cannot have one name")
        bounds = [low + (high - low) * n // count for n in range(count + 1)] if count else []
        opened = [
            _Range(id=name, low=begin, high=end)
            for name, (begin, end) in zip(names, pairwise(bounds), strict=True)
        ]
        self._ranges.update((new.id, new) for new in opened)
        self._holders = sorted([*self._holders, *opened], key=lambda x: x.low)
        return opened

    def _fresh_name(self) -> RangeId:
        while (name := RangeId(f"r{self._counted}")) in self._ranges:
            self._counted += 1
        self._counted += 1
        return name

    def _range(self, range_id: RangeId) -> _Range:
        """Return a range, or the one that a part belongs to."""
        found = self._ranges.get(range_id)
        if found is None and (part := memory_parts.part_in(range_id)) is not None:
            whole, low, high = part
            found = self._ranges.get(whole)
            if found is not None and not found.low <= low < high <= found.high:
                found = None
        if found is None:
            raise RangeUnknown(range_id)
        return found

    def _open_range(self, range_id: RangeId) -> _Range:
        found = self._range(range_id)
        if found.id != range_id:
            raise ValueError(f"{range_id!r} is a part of a range: name the range {found.id!r}")
        if found.children is not None:
            raise ValueError(f"range {range_id!r} has ended and takes no more changes")
        return found

    def _holder_of(self, key: str) -> _Range:
        place = memory_parts.hash_of(key)
        index = bisect_right(self._holders, place, key=lambda x: x.low) - 1
        if index >= 0 and place < self._holders[index].high:
            return self._holders[index]
        raise ValueError(f"no open range holds the key {key!r}: its range was closed for good")

    def _in_part(self, found: _Range, part: RangeId, begin: int, limit: int) -> list[Change]:
        """Return the changes of a part. What was appended to a range that does not have its
        hash is in the lowest.
        """
        low, high = self._bounds(part)

        def is_in_part(change: Change) -> bool:
            place = memory_parts.hash_of(change.key)
            return low <= (place if found.low <= place < found.high else found.low) < high

        own = filter(is_in_part, islice(found.changes, begin, None))
        return list(islice(own, limit))

    def _children(self, ended: RangeId, names: Iterable[RangeId]) -> tuple[Child, ...]:
        low, high = self._bounds(ended)
        return tuple(
            Child(range=found.seen_from_outside(), start=_position(0))
            for found in map(self._ranges.__getitem__, names)
            if found.low < high and low < found.high
        )

    def _bounds(self, range_id: RangeId) -> tuple[int, int]:
        """Return the lowest hash of a range or a part, and one above the highest."""
        found = self._range(range_id)
        part = memory_parts.part_in(range_id) if found.id != range_id else None
        return part[1:] if part else (found.low, found.high)


def _overlap(a: _Range, b: _Range) -> bool:
    return a.low < b.high and b.low < a.high


def _position(sequence: int) -> Position:
    return Position(str(sequence))


def _sequence(found: _Range, range_id: RangeId, after: Position) -> int:
    """Read a position; refuse what this range cannot have given out."""
    if not (after.isascii() and after.isdigit()) or int(after) > len(found.changes):
        raise RangeRefused(
            range_id,
            f"{after!r} is not a position in range {range_id!r} of {len(found.changes)} "
            f"changes: it is of another feed. Start again from the beginning or from now",
        )
    return int(after)


def _refuse(address: Address, _: OpenOptions) -> NoReturn:
    raise FeedRefused(
        f"'{address}' has no address: a feed in memory lives in the one process that made it. "
        f"Make a MemoryFeed in Python, or use eventlog:PATH"
    )


BACKEND = FeedBackend(name="memory", place="", open=_refuse)
