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
class Place:
    """Where a range is read: the hashes from ``low`` up to but not including ``high`` in one
    physical range.

    ``original`` says that this physical range was there from the start, so that its LSNs
    have never begun again.
    """

    physical: RangeId
    low: str
    high: str
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
                return _place(x, x)
        part = _PART.fullmatch(found.id)
        if part is not None and LOWEST <= part[1] < part[2] <= HIGHEST:
            found = replace(found, low=part[1], high=part[2])
            holders = self._holders(found)
            return _place(holders[0], found) if len(holders) == 1 else self._parts(found)
        if not self._descendants(found.id):
            raise RangeUnknown(found.id)
        if found.high:
            return self._parts(found)
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
        newest = max(parts, key=lambda x: x.generation)
        joined = part_between(newest, parts[0].low, parts[-1].high)
        holders = self._holders(joined)
        if len(holders) != 1:
            names = ", ".join(x.id for x in holders)
            raise FeedRefused(
                f"ranges {', '.join(x.id for x in parts)} are read from several physical "
                f"ranges ({names}), whose positions cannot be compared: Cosmos DB alone can "
                f"merge these"
            )
        (holder,) = holders
        if joined.covers(holder):
            return replace(holder, generation=max(holder.generation, joined.generation))
        of_one = len({x.of for x in parts}) == 1
        return joined if of_one else replace(joined, of=None)

    def _holders(self, found: FeedRange) -> Sequence[FeedRange]:
        return [x for x in self.physical if x.shares_keys_with(found)]

    def _descendants(self, range_id: RangeId) -> tuple[FeedRange, ...]:
        return tuple(x for x in self.physical if range_id in x.parents)

    def _parts(self, ended: FeedRange) -> tuple[FeedRange, ...]:
        """Cut a range at the bounds of the physical ranges: what takes over from it.

        A half of a merged range is one of the feed's own: LSNs that both halves have from
        before their merge name other changes in each.
        """
        found = []
        for x in self._holders(ended):
            half = part_between(x, max(x.low, ended.low), min(x.high, ended.high))
            whole = ended.covers(x)
            found.append(x if whole else replace(half, of=None, parents=(ended.id,)))
        return tuple(found)

    def _merged_since(self, range_id: RangeId) -> bool:
        """Whether a merge may have taken part in the descent from a range."""
        living = self._living(range_id)
        names = {name for x in self._descendants(range_id) for name in x.parents}
        seen = [y for y in map(self._living, names) if y <= living]
        return len(living) == 1 or len(set(seen)) < len(seen)

    def _living(self, range_id: RangeId) -> frozenset[RangeId]:
        return frozenset(x.id for x in self._descendants(range_id))


def _place(held: FeedRange, found: FeedRange) -> Place:
    return Place(physical=held.id, low=found.low, high=found.high, original=not held.parents)


def part_between(found: FeedRange, low: str, high: str) -> FeedRange:
    """Return the part of a range with these bounds, which its id names."""
    return sub_range_of(found, id=RangeId(f"{low}-{high}"), low=low, high=high)
