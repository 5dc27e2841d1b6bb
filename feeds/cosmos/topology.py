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

Cosmos DB gives the ids of all ancestors of a range, but not their bounds: its reader has these
from its lease. Of a lease without bounds, a gone range is what descends from it, which is right
unless something was merged since. That is seen in the family tree, and then refused: after
splits alone, no two ancestors of a range have the same living descendants.

Pure values; nothing here asks a server.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from changefeed.feeds.errors import FeedRefused, RangeUnknown
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.parts import sub_range_of

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
    """The physical ranges of a container now."""

    physical: Sequence[FeedRange]  # by their bounds, without a gap

    @classmethod
    def of(cls, physical: Iterable[FeedRange]) -> "Topology":
        return cls(physical=sorted(physical, key=lambda x: x.low))

    @property
    def complete(self) -> bool:
        """Whether the ranges cover every hash; in mid-split a list may not."""
        lows = [x.low for x in self.physical]
        highs = [x.high for x in self.physical]
        return [*lows, HIGHEST] == [LOWEST, *highs]

    def name_of_changes(self, found: FeedRange) -> RangeId:
        """Return the range that changes are named after which are read from one.

        That is the physical range, as long as it is there: each counts its LSNs for itself,
        so what two parts read from two of them must not have one name.
        """
        return found.whole if any(x.id == found.of for x in self.physical) else found.id

    def find(self, found: FeedRange) -> Place | tuple[FeedRange, ...]:
        """Return where a range is read, or what goes on with its keys if it has ended.

        Raise ``RangeUnknown`` for what was never a range here, and ``FeedRefused`` where
        only forgotten bounds would show it.
        """
        for x in self.physical:
            if x.id == found.id:
                return _place(x, _bounds(x))
        bounds = _named_bounds(found.id)
        if bounds is not None:
            holders = self._holders(bounds)
            if len(holders) == 1:
                return _place(holders[0], bounds)
            return self._parts(found, bounds)
        if not self._descendants(found.id):
            raise RangeUnknown(found.id)
        if found.high:
            return self._parts(found, _bounds(found))
        if self._merged_since(found.id):
            raise FeedRefused(
                f"range {found.id!r} was merged with another while no host was looking, and "
                f"its bounds are not known any more: a lease without bounds (FeedRange) "
                f"cannot be followed through a merge. Reset the lease of this range"
            )
        return self._descendants(found.id)

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
        newest = max(parts, key=lambda x: x.generation)
        joined = part_between(newest, bounds.low, bounds.high)
        if _bounds(holder) == bounds:
            return replace(holder, generation=max(holder.generation, joined.generation))
        of_one = len({x.of for x in parts}) == 1
        return joined if of_one else replace(joined, of=None)

    def _holders(self, bounds: Bounds) -> Sequence[FeedRange]:
        return [x for x in self.physical if _bounds(x).common(bounds)]

    def _descendants(self, range_id: RangeId) -> tuple[FeedRange, ...]:
        return tuple(x for x in self.physical if range_id in x.parents)

    def _parts(self, ended: FeedRange, bounds: Bounds) -> tuple[FeedRange, ...]:
        """Cut bounds at those of the physical ranges: what takes over from a range.

        A half of a merged range is one of the feed's own: LSNs that both halves have from
        before their merge name other changes in each.
        """
        found = []
        for x in self._holders(bounds):
            part = _bounds(x).common(bounds)
            if part == _bounds(x):
                found.append(x)
            elif part is not None:
                half = part_between(x, part.low, part.high)
                found.append(replace(half, of=None, parents=(ended.id,)))
        return tuple(found)

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


def part_between(found: FeedRange, low: str, high: str) -> FeedRange:
    """Return the part of a range with these bounds, which its id names."""
    return sub_range_of(found, id=RangeId(f"{low}-{high}"), low=low, high=high)
