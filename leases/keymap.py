"""Who holds which keys of a feed, as its leases say it: the one place that knows.

A lease that ends says in that same write what it goes on in (``RangeEnd``). It stays, as the
tombstone of its range, until all its keys are being read under later leases. The lease of a
child is created when tombstones that name it hold *all* its keys, and no open lease holds any;
where some have gone on in a later range without it, as sub-ranges of the others. So there is no
child of an end that did not happen, and every open lease may be read, but for the traces of
writes that came late: each range has a *generation*, which grows along every key, and what is
earlier than another lease of the same keys is a trace of the past.

The first leases come of an end, too: that of the *root*, which the fleet settles once.

Keys are known by their bounds. A range without any has those of what has come of it, as the
feed tells; else it is taken to hold no keys, and only its name says who goes on in it.

Pure: nothing here asks a feed or a store. Listings may be torn: what is created, deleted or
owned for the first time has to be so in two listings in a row.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType

from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Child, FeedRange, RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.lease import Lease, RangeEnd, newest
from changefeed.leases.segments import Segments, marked_in


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLease:
    """The lease of a child that is to be created, the checkpoint that it begins with, and the
    tombstones that name it; none where that is the root. ``revived`` is the tombstone that is
    there of an earlier range of that name, which it replaces. ``kept_back`` says that a lease
    of its keys, or its name, was deleted by hand: its owner may create that again.
    """

    child: Child
    start: Checkpoint
    parents: Sequence[Lease]
    revived: Lease | None = None
    kept_back: bool = False

    @property
    def range_id(self) -> RangeId:
        return self.child.range.id


def _between(found: FeedRange, low: str, high: str) -> FeedRange:
    return dataclasses.replace(found, low=low, high=high)


class KeyMap:
    """What one listing of all leases says. ``ranges`` are those that the feed lists.

    They tell the bounds and generations of leases that other processors have written, and so do
    tombstones that name one before the feed was asked for it. ``begun`` is that of the key map
    of the listing before. ``sub_range`` makes one of some keys of a range, or raises
    ``FeedRefused``.
    """

    def __init__(
        self,
        leases: Iterable[Lease],
        *,
        root: RangeEnd | None = None,
        ranges: Iterable[FeedRange] = (),
        sub_range: Callable[[FeedRange, str, str], FeedRange] = _between,
        begun: Mapping[RangeId, FeedRange] = MappingProxyType({}),
    ) -> None:
        self.ranges: Sequence[FeedRange] = list(ranges)
        self._sub_range = sub_range
        listed = {x.id: x for x in self.ranges}
        self._guessed: set[RangeId] = set()
        there = newest(leases)
        ends = [x.end for x in there.values() if x.end is not None]
        named = (x.range for end in ends for x in end.children)
        known = {x.id: x for x in named if x.id in there and _is_foreign(there[x.id])} | listed
        self.leases: Mapping[RangeId, Lease] = {
            name: _completed(x, known.get(name) or self._ancestor(x))
            for name, x in there.items()
        }
        self._root = () if root is None else root.children
        self._open = [x for x in self.leases.values() if x.end is None]
        self._ended = [(x, x.end) for x in self.leases.values() if x.end is not None]
        self._named = self._children_by_name()
        gone = {name: x for name, x in begun.items() if name not in self.leases}
        self._keys = Segments([*self._all_ranges(), *gone.values()])
        keys = self._keys
        self._read, self._unread = self._by_readers()
        read = {x.range_id: x.range for x in self._read}
        self._begun = keys.marked(read.values())
        deleted = {name: x for name, x in gone.items() if not keys.any(self._begun, x)}
        self.begun: Mapping[RangeId, FeedRange] = read | deleted
        """The ranges that have an owner or had one, and those whose lease was deleted while no
        other lease with an owner shares their keys.
        """
        # What another processor has made behind the back of who reads its keys keeps nothing
        # from going on.
        self._held = keys.marked(
            x.range
            for x in self._open
            if not (_is_foreign(x) and keys.any(self._begun, x.range))
        )
        self._buried = keys.marked(x.range for x, _ in self._ended)
        self._latest = keys.latest(x.range for x in self.leases.values())
        self.new_leases: Sequence[NewLease] = list(self._find_new_leases(deleted))
        """The children whose leases are to be created."""
        self._coming = keys.marked(x.child.range for x in self.new_leases)

    def readable(self) -> Sequence[Lease]:
        """Return the leases that a host may own.

        They are open and not paused. One that no host has owned yet may be read if no begun or
        later lease has any of its keys; of several with the same keys, the latest.
        """
        taken = bytearray(self._begun)
        found = [x for x in self._read if x.paused is None]
        waiting = sorted(self._unread, key=lambda x: (x.range.generation, x.range_id))
        for x in reversed(waiting):
            if self._keys.any(taken, x.range) or (self._is_past(x) and not _is_foreign(x)):
                continue
            self._keys.mark(taken, x.range)
            if x.paused is None:
                found.append(x)
        return found

    def start_of(self, lease: Lease) -> Checkpoint | None:
        """Return what the tombstones of all its keys say of a lease: what it begins with.

        One that no host has owned yet may have been made for keys that seemed to have no lease.
        What comes of the root was made by what the root says.
        """
        found = self._named.get(lease.range_id)
        if found is None or found.of_root:
            return None
        known = self.leases[lease.range_id].range
        same = found.child.range.generation == known.generation
        return found.start if same and not self._uncovered(found) else None

    def finished(self, listed: Collection[RangeId]) -> Sequence[Lease]:
        """Return the tombstones that nothing needs any more: the feed does not list their
        range, nor that which they are sub-ranges of, and all their keys are being read. Where
        bounds are not known, their children.
        """
        return [
            x
            for x, end in self._ended
            if x.range.whole not in listed
            and self._keys.all(self._begun, x.range)
            and (x.range.high or self._goes_on_by_name(x, end))
        ]

    def _goes_on_by_name(self, lease: Lease, end: RangeEnd) -> bool:
        """Whether nothing would create a range without bounds again: its children are being
        read, and the root, which stays, does not name it.
        """
        of_root = self._named.get(lease.range_id)
        has_begun = all(self._has_begun(x.range.id) for x in end.children)
        return has_begun and (of_root is None or not of_root.of_root)

    def stale(self) -> Sequence[Lease]:
        """Return traces of late writes: leases unowned since they were made, while later or
        begun leases have keys of theirs. Those of other processors are left to them.
        """
        return [
            x
            for x in self._unread
            if not _is_foreign(x) and (self._keys.any(self._begun, x.range) or self._is_past(x))
        ]

    def gaps(self) -> Sequence[tuple[str, str]]:
        """Return the bounds of keys, of ranges that the feed lists, that no lease has or comes
        to have: it was deleted by hand, and hosts create another.
        """
        filled = self._keys.marked(self.ranges_for_gaps())
        return list(self._keys.spans(marked_in(filled)))

    def ranges_for_gaps(self) -> Iterator[FeedRange]:
        """Yield the oldest ranges that hold the keys of gaps, or what they hold of them.

        None is from before the root: its children would begin before the fleet.
        """
        keys, missing = self._keys, self._missing()
        root = keys.latest(map(attrgetter("range"), self._root))
        holding = {
            x.id: x
            for x in self.ranges
            if keys.any(missing, x) and x.generation[0] >= keys.latest_of(root, x)[0]
        }
        for x in holding.values():
            older = [keys.of(holding[y]) for y in x.parents if y in holding]
            yield from self._parts_of(
                x, (n for n in keys.of(x) if missing[n] and not any(n in y for y in older))
            )

    def is_held(self, listed: FeedRange) -> bool:
        """Whether leases have all keys now of a range that the feed lists, if it has bounds."""
        return bool(listed.high) and not self._keys.any(self._unheld, listed)

    @cached_property
    def _unheld(self) -> bytes:
        return bytes(map(max, self._missing(), self._coming))

    def overlaps(self) -> Sequence[tuple[Lease, Lease]]:
        """Return begun leases that share keys, which are read twice."""
        known = (x for x in self._open if x.epoch and x.range_id not in self._guessed)
        begun = sorted(known, key=lambda x: x.range.low)
        found: list[tuple[Lease, Lease]] = []
        reaching: Lease | None = None
        for x in begun:
            if reaching is not None and reaching.range.shares_keys_with(x.range):
                found.append((reaching, x))
            if reaching is None or reaching.range.high < x.range.high:
                reaching = x
        return found

    def orphans(self) -> Sequence[tuple[str, str]]:
        """Return the bounds of keys that no lease can come for: it was deleted by hand, and no
        host can tell where they begin, or their feed cannot read them without others.
        """
        coming, before = bytearray(map(max, self._held, self._coming)), b""
        while before != coming:  # what comes may let another come
            before = bytes(coming)
            for found in self._named.values():
                missing = self._uncovered(found)
                if all(coming[n] for n in missing) and not self._has_come(found, missing):
                    self._keys.mark(coming, found.child.range)
        closed = self._keys.marked(x.range for x, end in self._ended if not end.children)
        there = zip(self._buried, coming, closed, strict=True)  # or closed for good
        lost = bytearray(b and not (c or d) for b, c, d in there)
        filled = self._keys.marked(self.ranges_for_gaps())
        for n in marked_in(self._missing()):
            lost[n] = not filled[n]
        return list(self._keys.spans(marked_in(lost)))

    def _missing(self) -> bytes:
        wanted = self._keys.marked(self.ranges)
        there = zip(wanted, self._held, self._buried, self._coming, strict=True)
        return bytes(w and not (h or b or c) for w, h, b, c in there)

    def _by_readers(self) -> tuple[Sequence[Lease], Sequence[Lease]]:
        """Return the open leases that hosts read or have read, and the others: also what its
        owner created again when later leases of its keys had begun.
        """
        latest = self._keys.latest(x.range for x in self._open if x.epoch)
        read, unread = list[Lease](), list[Lease]()
        for x in self._open:
            by_owner = x.stamp is not None and x.owner is None and not x.renewals
            late = by_owner and self._keys.latest_of(latest, x.range) > x.range.generation
            (read if x.epoch and not late else unread).append(x)
        return read, unread

    def _ancestor(self, lease: Lease) -> FeedRange | None:
        """Return the bounds of what has come of a range that has none of its own."""
        if lease.range.high:
            return None
        kin = [x for x in self.ranges if lease.range_id in x.parents and x.high]
        low = min((x.low for x in kin), default="")
        high = max((x.high for x in kin), default="")
        self._guessed.add(lease.range_id)  # after a merge, others may hold some of these
        return FeedRange(id=lease.range_id, low=low, high=high)

    def _children_by_name(self) -> Mapping[RangeId, "_Named"]:
        found: dict[RangeId, _Named] = {}
        for child in self._root:
            found[child.range.id] = _Named(child=child, by=[], of_root=True)
        for lease, end in sorted(self._ended, key=lambda x: x[0].range.generation):
            for child in end.children:
                known = found.get(child.range.id)
                if known is None or known.child.range.generation < child.range.generation:
                    found[child.range.id] = _Named(child=child, by=[lease])
                elif known.child.range.generation == child.range.generation:
                    known.by.append(lease)
                    known.child = known.child if known.of_root else child
        return found

    def _find_new_leases(self, deleted: Mapping[RangeId, FeedRange]) -> Iterator[NewLease]:
        kept_back = self._keys.marked(deleted.values())
        for found in self._named.values():
            if not self._is_unknown(found.child.range):
                continue
            if not self._uncovered(found) and not self._has_come(found):
                left = [found.child.range]
            else:
                left = [x for x in self._left_of(found) if self._is_unknown(x)]
            for x in left:
                yield NewLease(
                    child=Child(range=x, start=found.child.start),
                    start=found.start,
                    parents=found.by,
                    revived=self.leases.get(x.id),
                    kept_back=x.id in deleted or self._keys.any(kept_back, x),
                )

    def _is_unknown(self, found: FeedRange) -> bool:
        """Whether a range has no lease, but for a tombstone of an earlier one of that name."""
        lease = self.leases.get(found.id)
        return lease is None or (
            lease.end is not None and lease.range.generation < found.generation
        )

    def _left_of(self, found: "_Named") -> Iterator[FeedRange]:
        """Yield the keys that a child has not come for, while later ranges have come for
        others: the leases of all were lost, and one of these was created again by its owner.
        """
        keys, child, latest = self._keys, found.child.range, self._latest
        if keys.all(self._held, child):
            return
        come = {n for n in keys.of(child) if latest[n] >= child.generation}
        if come:
            left = keys.without(child, self._held)
            ended = keys.marked(x.range for x in found.by)
            yield from self._parts_of(child, (n for n in left if ended[n] and n not in come))

    def _parts_of(self, found: FeedRange, segments: Iterable[int]) -> Iterator[FeedRange]:
        """Yield what holds some segments of a range: parts of it, or itself."""
        for low, high in self._keys.spans(segments):
            if (low, high) == (found.low, found.high):
                yield found
                continue
            with suppress(FeedRefused):  # what cannot be read in parts waits for a person
                yield self._sub_range(found, low, high)

    def _uncovered(self, found: "_Named") -> Sequence[int]:
        """Return the segments of a child that no tombstone which names it holds."""
        if found.of_root:
            return ()
        held = self._keys.marked(x.range for x in found.by)
        return self._keys.without(found.child.range, held)

    def _has_come(self, found: "_Named", missing: Collection[int] = ()) -> bool:
        """Whether keys of a child are held, but for those that its parents still have, or were
        by a range of its generation or later.
        """
        child = found.child.range
        if any(self._held[n] for n in self._keys.of(child) if n not in missing):
            return True
        return self._keys.latest_of(self._latest, child) >= child.generation

    def _is_past(self, lease: Lease) -> bool:
        """Whether a lease of these keys, open or ended, came later."""
        return self._keys.latest_of(self._latest, lease.range) > lease.range.generation

    def _has_begun(self, name: RangeId) -> bool:
        lease = self.leases.get(name)
        return lease is not None and (lease.epoch > 0 or lease.end is not None)

    def _all_ranges(self) -> Iterator[FeedRange]:
        yield from self.ranges
        for x in self.leases.values():
            yield x.range
        for named in self._named.values():
            yield named.child.range


@dataclass(slots=True, kw_only=True)
class _Named:
    """A child, and the tombstones that name it."""

    child: Child
    by: list[Lease]
    of_root: bool = False

    @property
    def start(self) -> Checkpoint:
        """What is done of it as it begins. What one of several has done says nothing of the
        keys of the others.
        """
        end = self.by[0].end if len(self.by) == 1 else None
        return Checkpoint(self.child.start) if end is None else end.checkpoint_of(self.child)


def _is_foreign(lease: Lease) -> bool:
    """Whether another processor wrote a lease that has had no owner: ours have no stamp then.
    Its generation may not be known, so it says nothing of what came later.
    """
    return not lease.epoch and lease.stamp is not None


def _completed(lease: Lease, listed: FeedRange | None) -> Lease:
    """Tell a lease what the feed knows of its range; when the feed lists it no more, what its
    end does: it came before its children.
    """
    known = lease.range
    generation = (
        known.generation if listed is None else max(known.generation, listed.generation)
    )
    if lease.end is not None and lease.end.children:
        depth = min(x.range.generation[0] for x in lease.end.children)
        generation = max(generation, (depth - 1, 0))
    place = listed if listed is not None and not known.high else known
    if place is known and generation == known.generation:
        return lease
    found = dataclasses.replace(known, low=place.low, high=place.high, generation=generation)
    return replace(lease, range=found)
