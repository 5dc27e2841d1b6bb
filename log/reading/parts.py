"""Parts of partitions: the records of some virtual parts, with the sequences of the partition.

A part is read from its partition, and what others hold is left out. All parts of a partition
that one process reads share its pages: the one that comes first has a page read and decoded,
and the virtual parts of its keys found; the others find it in memory, as long as they are not
farther behind than ``_CACHED_BYTES``. A reader further behind than that reads for itself.

A part without changes of its own reads on over those of others, for ``_MAX_SCAN`` at
most: then it says how far it has come, with a page that has no changes.
"""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from changefeed.feeds.errors import FeedRefused, RangeRefused
from changefeed.feeds.feed import (
    Change,
    Child,
    FeedRange,
    Page,
    Position,
    RangeEnded,
    RangeId,
)
from changefeed.feeds.parts import sub_range_of
from changefeed.log.catalog.ranges import Partition
from changefeed.log.hashing import virtual_part_of
from changefeed.log.ids import part_id, part_in, position, sequence_in
from changefeed.log.rows.object_cache import Cache

_PAGE: Final = 1000
"""How many changes of a partition are read at once for its parts, whatever these ask for."""
_PAGE_BYTES: Final = 8 * 1024 * 1024
_CACHED_BYTES: Final = 32 * 1024 * 1024
_CHANGE_BYTES: Final = 300  # what a change takes beside its body, about
_MAX_SCAN: Final = 1.0


def part_between(found: FeedRange, low: str, high: str) -> FeedRange:
    """Return the part of a partition between bounds as its range has them; or of that which a
    part belongs to.
    """
    name = part_id(found.whole, _virtual(low), _virtual(high) - 1)
    return sub_range_of(found, id=name, low=low, high=high)


def cut(found: FeedRange, into: int) -> Sequence[FeedRange]:
    """See ``Feed.split``. Virtual parts are not divided."""
    prefix, low, high = found.low[:-3], _virtual(found.low), _virtual(found.high)
    if high - low < into:
        raise FeedRefused(
            f"range {found.id!r} has {high - low} virtual parts: it cannot be split into {into}"
        )
    bounds = [f"{prefix}{low + (high - low) * n // into:03x}" for n in range(into + 1)]
    assert all(x < y for x, y in pairwise(bounds)), f"a part of {found.id!r} has no keys"
    return [part_between(found, x, y) for x, y in pairwise(bounds)]


def _virtual(bound: str) -> int:
    return int(bound[-3:], 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some virtual parts of a partition, both ends included."""

    id: RangeId
    partition: Partition
    low: int
    high: int

    def __post_init__(self) -> None:
        assert self.partition.low <= self.low <= self.high <= self.partition.high, (
            f"{self.id!r} is no part of {self.partition.id!r}"
        )

    @classmethod
    def of(cls, partition: Partition, range_id: RangeId) -> "Part | None":
        """Return the part of the partition that a name means; ``None`` for the partition."""
        found = part_in(range_id)
        if found is None:
            return None
        _, low, high = found
        return cls(id=range_id, partition=partition, low=low, high=high)

    def children_in(self, children: Sequence[Child]) -> tuple[Child, ...]:
        whole = self.partition.as_range()
        prefix = whole.low[:-3]
        low, high = f"{prefix}{self.low:03x}", f"{prefix}{self.high + 1:03x}"
        found = part_between(whole, low, high)
        return tuple(x for x in children if x.range.shares_keys_with(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """A page of a partition, and the virtual part of each of its changes."""

    changes: Sequence[Change]
    virtual: bytes
    size: int

    @classmethod
    def of(cls, partition: Partition, changes: Sequence[Change]) -> "_Shared":
        """What is not in a virtual part of the partition counts as in its lowest."""
        assert changes, f"an empty page of {partition.id!r} is shared by none"
        low, high = partition.low, partition.high
        places = (virtual_part_of(x.key) for x in changes)
        return cls(
            changes=changes,
            virtual=bytes(x if low <= x <= high else low for x in places),
            size=sum(_CHANGE_BYTES + len(x.body) + len(x.previous or b"") for x in changes),
        )

    def of_part(self, part: Part, after: int, limit: int) -> list[Change]:
        """Return the changes of a part behind a sequence of the page."""
        begin = after + 1 - self.changes[0].sequence
        assert 0 <= begin <= len(self.changes), f"{after + 1} is not in the page of {part.id!r}"
        low, high = part.low, part.high
        own = [
            x
            for x, place in zip(self.changes[begin:], self.virtual[begin:], strict=True)
            if low <= place <= high
        ]
        return own[:limit]


class PartReader:
    """Reads the parts of all partitions of a log, through the pages of these.

    ``read`` reads a partition after a position, about so many changes of it.
    """

    def __init__(
        self, identity: str, read: Callable[[Partition, Position, int], Awaitable[Page]]
    ) -> None:
        self._identity = identity
        self._read_whole = read
        self._pages = _SharedPages()
        self._reading: defaultdict[RangeId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.decoded = 0
        """How many changes were read from partitions so far."""

    async def read(self, part: Part, after: Position, limit: int) -> Page:
        last = begin = sequence_in(part.id, after, self._identity)
        clock = asyncio.get_running_loop().time
        until, size = clock() + _MAX_SCAN, 0
        own: list[Change] = []
        while len(own) < limit and size < _PAGE_BYTES and clock() < until:
            try:
                page = await self._page(part.partition, last)
            except (RangeEnded, RangeRefused) as error:
                if own:
                    break  # it is raised again at the next page
                raise _of_part(error, part) from error
            if page is None:
                break
            more = page.of_part(part, last, limit - len(own))
            own += more
            size += sum(len(x.body) for x in more)
            assert len(own) <= limit, f"{len(own)} changes of {part.id!r}, of {limit}"
            assert page.changes[-1].sequence > last, f"{part.id!r} is not read on from {last}"
            last = page.changes[-1].sequence
        reached = own[-1].sequence if own else last
        assert reached >= begin, f"{part.id!r} goes back from {begin} to {reached}"
        return Page(changes=own, position=position(self._identity, reached))

    async def _page(self, partition: Partition, last: int) -> _Shared | None:
        """Return a page with the change behind a sequence; ``None`` if there is none yet."""
        async with self._reading[partition.id]:
            found = self._pages.find(partition.id, last + 1)
            if found is None:
                after = position(self._identity, last)
                changes = [*(await self._read_whole(partition, after, _PAGE)).changes]
                if not changes:
                    return None
                self.decoded += len(changes)
                found = _Shared.of(partition, changes)
                self._pages.keep(partition.id, found)
            return found


def _of_part(error: RangeEnded | RangeRefused, part: Part) -> Exception:
    if isinstance(error, RangeEnded):
        return RangeEnded(part.id, part.children_in(error.children))
    return type(error)(part.id, error.reason.replace(part.partition.id, part.id))


class _SharedPages:
    """The pages that were used last, up to so many bytes."""

    def __init__(self) -> None:
        self._kept = Cache[tuple[RangeId, int], _Shared](_CACHED_BYTES, lambda x: x.size)
        self._firsts: defaultdict[RangeId, list[int]] = defaultdict(list)

    def find(self, partition: RangeId, sequence: int) -> _Shared | None:
        firsts = self._firsts[partition]
        n = bisect_right(firsts, sequence) - 1
        found = self._kept.use((partition, firsts[n])) if n >= 0 else None
        if found is None or sequence > found.changes[-1].sequence:
            return None
        assert found.changes[0].sequence == firsts[n], f"a page of {partition!r} is elsewhere"
        return found

    def keep(self, partition: RangeId, page: _Shared) -> None:
        first = page.changes[0].sequence
        self._kept.add((partition, first), page)
        firsts = sorted({*self._firsts[partition], first})
        self._firsts[partition] = [x for x in firsts if self._kept.peek((partition, x))]
        assert first in self._firsts[partition], f"{partition!r} has lost a page"
