"""Which ranges a container has, and where to read one that it no longer has.

Cosmos DB splits and merges its physical ranges when it likes. A range that is gone cannot
be read any more, but nothing in it is lost: the range that holds its keys now serves its
changes too, from the same positions. So a gone range *ends* at once, where its reader is,
and goes on from there in the ranges that hold its keys by now, however many splits lie
between.

After a split these are whole physical ranges. After a merge it is a part of one: each
half is then read on alone, within its own bounds, under an id that names the bounds
(``05C1DFFFFFFFFC-FF``, as other processors name such a lease), because two readers come
from two positions that cannot be compared. Such a part lives until the range under it is
split inside of it.

Cosmos DB gives the ids of all ancestors of a range, but not their bounds. They are
*recalled*: from having seen the range alive, or from leases. Without them a gone range is
what descends from it, which is right unless something was merged since. That is seen in the
family tree, and then refused: after splits alone, no two ancestors of a range have the same
living descendants.

Pure values; nothing here asks a server.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from changefeed.feeds.errors import FeedRefused, RangeUnknown
from changefeed.feeds.feed import FeedRange, RangeId

LOWEST: Final = ""
HIGHEST: Final = "FF"
_PART = re.compile(r"([0-9A-F]*)-([0-9A-F]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Hashes from ``low`` up to but not including ``high``."""

    low: str
    high: str

    def common(self, other: "Bounds") -> "Bounds | None":
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Bounds(low=low, high=high) if low < high else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a range is read: some bounds in one physical range.

    ``original`` says that this physical range was there from the start, so that its LSNs
    have never begun again.
    """

    physical: RangeId
    bounds: Bounds
    original: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The physical ranges of a container now, and the bounds of others that are recalled."""

    physical: Sequence[FeedRange]  # by their bounds, without a gap
    recalled: Mapping[RangeId, Bounds] = field(default_factory=dict)

    def recalling(self, ranges: Iterable[FeedRange]) -> "Topology":
        """Add the bounds of ranges that a lease, or an earlier look, knows."""
        known = {x.id: _bounds(x) for x in ranges if x.high}
        return replace(self, recalled={**self.recalled, **known})

    def replaced_by(self, physical: Iterable[FeedRange]) -> "Topology":
        """Take a newer list of the physical ranges; recall those of the old one."""
        newer = sorted(physical, key=lambda x: x.low)
        return replace(self.recalling(self.physical), physical=newer)

    @property
    def complete(self) -> bool:
        """Whether the ranges cover every hash; in mid-split a list may not."""
        lows = [x.low for x in self.physical]
        highs = [x.high for x in self.physical]
        return [*lows, HIGHEST] == [LOWEST, *highs]

    def listed(self) -> Sequence[FeedRange]:
        """Return the physical ranges; what still reads keys of one is among its parents.

        So no host begins with a merged range while its halves are being read.
        """
        return [replace(x, parents=self._held_before(x)) for x in self.physical]

    def find(self, range_id: RangeId) -> Place | tuple[FeedRange, ...]:
        """Return where a range is read, or what goes on with its keys if it has ended.

        Raise ``RangeUnknown`` for what was never a range here, and ``FeedRefused`` where
        only forgotten bounds would show it.
        """
        for x in self.physical:
            if x.id == range_id:
                return _place(x, _bounds(x))
        bounds = _named_bounds(range_id)
        if bounds is not None:
            holders = self._holders(bounds)
            if len(holders) == 1:
                return _place(holders[0], bounds)
            return self._parts(range_id, bounds)
        if not self._descendants(range_id):
            raise RangeUnknown(range_id)
        if range_id in self.recalled:
            return self._parts(range_id, self.recalled[range_id])
        if self._merged_since(range_id):
            raise FeedRefused(
                f"range {range_id!r} was merged with another while no host was looking, and "
                f"its bounds are not known any more: a lease without bounds (FeedRange) "
                f"cannot be followed through a merge. Reset the lease of this range"
            )
        return self._descendants(range_id)

    def joined(self, parts: Sequence[FeedRange]) -> FeedRange:
        """Return the part that holds the keys of some, which touch, of one physical range; or
        that range, where they are all of its keys.

        Raise ``FeedRefused`` for others: each physical range counts its LSNs for itself.
        """
        bounds = Bounds(low=parts[0].low, high=parts[-1].high)
        holders = self._holders(bounds)
        if len(holders) != 1:
            names = ", ".join(x.id for x in holders)
            raise FeedRefused(
                f"ranges {', '.join(x.id for x in parts)} are read from several physical "
                f"ranges ({names}), whose positions cannot be compared: Cosmos DB alone can "
                f"merge these"
            )
        (holder,) = holders
        whole = _bounds(holder) == bounds
        return holder if whole else part_between(bounds.low, bounds.high)

    def _holders(self, bounds: Bounds) -> Sequence[FeedRange]:
        return [x for x in self.physical if _bounds(x).common(bounds)]

    def _descendants(self, range_id: RangeId) -> tuple[FeedRange, ...]:
        return tuple(x for x in self.physical if range_id in x.parents)

    def _parts(self, range_id: RangeId, bounds: Bounds) -> tuple[FeedRange, ...]:
        """Cut bounds at those of the physical ranges: what takes over from a range."""
        found = []
        for x in self._holders(bounds):
            part = _bounds(x).common(bounds)
            if part == _bounds(x):
                found.append(replace(x, parents=self._held_before(x)))
            elif part is not None:
                found.append(replace(part_between(part.low, part.high), parents=(range_id,)))
        return tuple(found)

    def _held_before(self, held: FeedRange) -> tuple[RangeId, ...]:
        parts = [
            name
            for name, bounds in self.recalled.items()
            if _named_bounds(name) is not None and bounds.common(_bounds(held))
        ]
        return tuple(dict.fromkeys([*held.parents, *parts]))

    def _merged_since(self, range_id: RangeId) -> bool:
        """Whether a merge may have taken part in the descent from a range."""
        living = self._living(range_id)
        names = {name for x in self._descendants(range_id) for name in x.parents}
        seen = [y for y in map(self._living, names) if y <= living]
        return len(living) == 1 or len(set(seen)) < len(seen)

    def _living(self, range_id: RangeId) -> frozenset[RangeId]:
        return frozenset(x.id for x in self._descendants(range_id))


def _bounds(x: FeedRange) -> Bounds:
    return Bounds(low=x.low, high=x.high)


def _place(held: FeedRange, bounds: Bounds) -> Place:
    return Place(physical=held.id, bounds=bounds, original=not held.parents)


def _named_bounds(range_id: RangeId) -> Bounds | None:
    """Read the bounds that the id of a part names."""
    found = _PART.fullmatch(range_id)
    if found is None or not LOWEST <= found[1] < found[2] <= HIGHEST:
        return None
    return Bounds(low=found[1], high=found[2])


def part_between(low: str, high: str) -> FeedRange:
    """Return a range of its own with these bounds, which its id names."""
    return FeedRange(id=RangeId(f"{low}-{high}"), low=low, high=high)
