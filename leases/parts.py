"""Ranges that are read in parts, as their leases say it.

A feed lists its ranges as it has them. Which of them are read in parts is known from leases
alone: each part has one, and it is kept when the part has been read to its end, as that of a
range is. So keys of such a range that no lease has, neither a living one nor an ended one,
belong to a part whose lease was deleted by hand. A part that was split or merged has ended, too
(and is marked as ``moved``), but others have its keys.

Where successors inherit positions (Cosmos DB), a range that is gone is not kept, and a merged
one is read in parts from its beginning: it waits for all that hold keys of it.

Pure: nothing here asks a feed or a container.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from changefeed.feeds.feed import Feed, FeedRange, RangeId
from changefeed.leases.lease import Lease


def with_parts(
    feed: Feed | None, ranges: Sequence[FeedRange], leases: Iterable[Lease]
) -> Sequence[FeedRange]:
    """Return the ranges of a feed, with the parts of those that are read in parts.

    Such a range itself is listed only if it has a lease. What goes on with keys of parts has
    these as parents as well, if they have not ended. A listing of leases may have some twice.
    """
    if feed is None:
        return ranges
    by_id = latest(leases)
    if feed.successors_inherit_positions:
        cut = [x.range for x in by_id.values() if is_cut(x.range)]
        return [below_parts(x, cut) for x in ranges]
    parts = _by_whole(by_id.values())
    if not parts and not any(x.ended and x.moved for x in by_id.values()):
        return ranges
    listed: list[FeedRange] = []
    unread: dict[RangeId, Sequence[FeedRange]] = {}
    for x in ranges:
        found = _below(x, unread)
        whole = _Whole(found, by_id.get(x.id), parts.get(x.id, ()), by_id)
        unread[x.id] = unread_here = [*whole.unended, *whole.gaps(feed)]
        if not whole.is_in_parts:
            listed.append(found)
            continue
        listed += [found] if whole.lease is not None else []
        listed += [y.range for y in (*whole.living, *whole.read)]
        listed += unread_here[len(whole.unended) :]
    return listed


def latest(leases: Iterable[Lease]) -> Mapping[RangeId, Lease]:
    """Return each lease of several listings once: what has ended in one has ended."""
    found: dict[RangeId, Lease] = {}
    for x in leases:
        known = found.get(x.range_id)
        if known is None or (known.ended, known.epoch) < (x.ended, x.epoch):
            found[x.range_id] = x
    return found


def is_cut(found: FeedRange) -> bool:
    """Whether a range is none that the feed lists, but a part of one."""
    return found.generation[1] > 0


def below_parts(found: FeedRange, parts: Iterable[FeedRange]) -> FeedRange:
    """Let a range of the feed have as parents those parts that hold keys of it."""
    if is_cut(found):
        return found
    names = [x.id for x in parts if x.id != found.id and x.shares_keys_with(found)]
    parents = tuple(dict.fromkeys([*found.parents, *names]))
    assert found.id not in parents, f"{found.id!r} would wait for itself"
    return replace(found, parents=parents)


def _by_whole(leases: Iterable[Lease]) -> Mapping[RangeId, Sequence[Lease]]:
    found: dict[RangeId, list[Lease]] = {}
    for x in leases:
        if x.range.of is not None:
            assert x.range.of != x.range_id, f"{x.range_id!r} is a part of itself"
            found.setdefault(x.range.of, []).append(x)
    return found


def _below(found: FeedRange, unread: Mapping[RangeId, Sequence[FeedRange]]) -> FeedRange:
    """Let a range have as parents those parts of its parents that hold keys of it."""
    return below_parts(found, [y for x in found.parents for y in unread.get(x, ())])


@dataclass(frozen=True, kw_only=False)
class _Whole:
    """A range, its own lease, and the leases of parts of it."""

    range: FeedRange
    lease: Lease | None
    parts: Collection[Lease]
    leases: Mapping[RangeId, Lease] = field(repr=False)

    @property
    def is_in_parts(self) -> bool:
        """Whether parts have its keys: some may only wait for it, after a split that was cut
        off. Where all that are listed were split or merged, the others are not listed yet.
        """
        if self.lease is not None and (not self.lease.ended or self.lease.moved):
            return self.lease.ended
        went_on = self.lease is None and any(x.ended and x.moved for x in self.parts)
        return bool(self.living or self.read or went_on)

    @property
    def unended(self) -> Sequence[FeedRange]:
        return [x.range for x in self.parts if not x.ended]

    @property
    def living(self) -> Sequence[Lease]:
        """Return those that are read, or that nothing keeps from being read."""
        return [x for x in self.parts if not x.ended and (x.epoch or self._may_begin(x))]

    def _may_begin(self, part: Lease) -> bool:
        before = [self.leases.get(x) for x in part.range.parents]
        return all(x is not None and x.ended for x in before)

    @property
    def read(self) -> Sequence[Lease]:
        """Return those that were read to the end of the range: no others have their keys."""
        return [x for x in self.parts if x.ended and x.epoch and not x.moved]

    def gaps(self, feed: Feed) -> Sequence[FeedRange]:
        """Return parts of the keys that no lease has."""
        if not self.is_in_parts:
            return []
        held = sorted((x.range.low, x.range.high) for x in (*self.living, *self.read))
        parents = tuple(dict.fromkeys([self.range.id, *self.range.parents]))
        return [
            replace(feed.sub_range(self.range, low, high), parents=parents)
            for low, high in _gaps(self.range, held)
        ]


def _gaps(found: FeedRange, held: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    low = found.low
    for begin, end in held:
        if low < begin:
            yield low, begin
        low = max(low, end)
    if low < found.high:
        yield low, found.high
