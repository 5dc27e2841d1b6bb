"""Deciding where the next batch ends. The feed is asked, nothing is remembered.

What is settled here is the end of every range, before anything is read: Spark logs it and,
after a crash, asks for the very same batch again.
"""

import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import FeedRange, Position, RangeId, StartAt
from changefeed.pipeline.source.lineage import ancestors, generations, with_children
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.reader import Access, Availability, Slice

if TYPE_CHECKING:
    from changefeed.pipeline.source.byte_limit import ByteLimit  # needs Spark, unlike commands

Name = TypeVar("Name", bound=str)

_LISTINGS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How far each range is read at the most; what has no target is not read at all.

    Where positions are taken over, so are targets: a range within the bounds of one that
    has a target shares it. Ranges in ``lows`` and ``highs`` do not overlap.
    """

    points: Mapping[RangeId, Position]
    lows: Sequence[str] = ()
    highs: Sequence[str] = ()
    shared: Sequence[Position] = field(default_factory=tuple)

    @classmethod
    def of(cls, marks: Mapping[RangeId, Mark]) -> "Target":
        bounded = sorted(
            (x.low, x.high, x.position) for x in marks.values() if x.high and not x.ended
        )
        return cls(
            points={name: x.position for name, x in marks.items()},
            lows=[low for low, _, _ in bounded],
            highs=[high for _, high, _ in bounded],
            shared=[point for _, _, point in bounded],
        )

    def point(self, access: Access, name: RangeId, mark: Mark) -> Position | None:
        """Return how far to read a range that is marked so.

        One that spans several is read to the furthest: it was merged again since.
        """
        if name in self.points or not mark.high:
            return self.points.get(name)
        first = bisect_right(self.lows, mark.low) - 1
        last = bisect_left(self.lows, mark.high) - 1
        if first < 0 or mark.high > self.highs[last]:
            return None
        return max(self.shared[first : last + 1], key=access.positions.order)


def fair_shares(lags: Mapping[Name, int], limit: int, turn: int = 0) -> Mapping[Name, int]:
    """Share ``limit`` among ranges by their lags: in all exactly, and at least one for each.

    With fewer changes to share than ranges that wait, they take turns: each ``turn`` has
    others go first.
    """
    waiting = {name: lag for name, lag in lags.items() if lag > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    if limit < len(waiting):
        names = sorted(waiting)
        first = turn % len(names)
        return dict.fromkeys([*names[first:], *names[:first]][:limit], 1)
    rest, left = total - len(waiting), limit - len(waiting)
    exact = {name: left * (lag - 1) for name, lag in waiting.items()}
    shares = {name: 1 + x // rest for name, x in exact.items()}
    spare = limit - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda x: (-(exact[x] % rest), x))
    for name in by_remainder[:spare]:
        shares[name] += 1
    assert sum(shares.values()) == limit, f"{limit} changes are shared as {shares}"
    assert all(0 < shares[x] <= waiting[x] for x in waiting), (
        f"{waiting} are shared as {shares}"
    )
    return shares


def first_offset(access: Access, start: StartAt) -> Offset:
    """Return where reading begins: of each line of descent, the oldest with a change left."""
    marks = _settled(access, start)
    if access.children_inherit_positions:  # what is gone is not listed, so all are the oldest
        return Offset(marks=marks, feed=access.identity())
    sights = access.look(marks)
    chosen: dict[RangeId, Mark] = {}
    over: dict[RangeId, Mark] = {}
    for x in access.ranges():
        if x.id not in marks or any(y in marks and y not in over for y in x.parents):
            continue  # it is introduced once its parents have been read
        if sights[x.id].lag == 0 and sights[x.id].children is not None:
            over[x.id] = marks[x.id].at_its_end()
        else:
            chosen[x.id] = marks[x.id]
    reached = chosen.keys() | over.keys()
    awaited = {  # a child of theirs still waits for another parent
        name: mark
        for name, mark in over.items()
        if any(x.range.id not in reached for x in sights[name].children or ())
    }
    return Offset(marks=chosen | awaited, feed=access.identity())


def target_at(access: Access, end: StartAt | Offset) -> Target:
    """Return how far to read to get to a point, for every range there is now.

    A range that an offset no longer names, because all its children were introduced, is
    read to its end.
    """
    if isinstance(end, Offset):
        access.check_feed(end)
        if access.children_inherit_positions:  # bounds say what its children are
            return Target.of(end.marks)
        known = {x.id: x for x in access.ranges()}
        passed = sorted(ancestors(end.marks, known) - end.marks.keys())
        ends = access.starts(passed, "now")
        return Target.of({**{x: Mark(position=ends[x]) for x in passed}, **end.marks})
    return Target.of(_settled(access, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What follows an offset, as the feed has answered once."""

    access: Access
    start: Offset
    sights: Mapping[RangeId, Availability]

    @classmethod
    def of(cls, access: Access, start: Offset, within: Target | None = None) -> "Ahead":
        """Ask what follows, and not behind a target."""
        access.check_feed(start)
        points = {
            x: point
            for x, m in start.marks.items()
            if within is not None and (point := within.point(access, x, m)) is not None
        }
        asked = start.marks
        if access.children_inherit_positions:
            # Ended ranges have handed on all they had; others go on where they are.
            order = access.positions.order
            asked = {
                x: m
                for x, m in start.marks.items()
                if not m.ended and not (x in points and order(points[x]) <= order(m.position))
            }
        ends = {x: points[x] for x in asked if x in points}
        return cls(access=access, start=start, sights=access.look(asked, ends))

    def end(
        self,
        *,
        limit: int | None = None,
        bytes_limit: "ByteLimit | None" = None,
        within: Target | None = None,
    ) -> Offset:
        """Return where the batch that begins at ``start`` ends: ``start`` if there is nothing.

        ``limit`` counts changes; of feeds that cannot count them, transactions.
        """
        access, start, sights = self.access, self.start, self.sights
        goals = {
            name: goal
            for name, mark in start.marks.items()
            if not mark.ended and name in sights and sights[name].lag > 0
            if (goal := _goal(access, name, mark, sights[name], within)) is not None
        }

        def reached(name: RangeId, share: int) -> Position:
            return _reached(access, sights[name], goals[name], share)

        distance = access.positions.distance
        shares: Mapping[RangeId, int] = {
            x: min(sights[x].lag, distance(start.marks[x].position, goal))
            for x, goal in goals.items()
        }
        # Any number serves that is another for another offset, and the same for the same.
        turn = zlib.crc32(start.as_text().encode())
        if limit is not None:
            shares = fair_shares(shares, limit, turn)
        if bytes_limit is not None and shares:
            shares = bytes_limit.fitted(
                access,
                shares,
                lambda some: {x: _slice(start, x, reached(x, n)) for x, n in some.items()},
                turn,
            )
        marks = {**start.marks}
        for name, share in shares.items():
            marks[name] = marks[name].at(reached(name, share))
        for name, sight in sights.items():
            mark = start.marks[name]
            if not mark.ended and _is_over(access, mark, marks[name], sight):
                marks[name] = marks[name].at_its_end()
        return with_children(access, start, marks, sights)

    def slices(self, end: Offset, *, changes: int) -> Sequence[Slice]:
        """Return what the batch up to an end reads; see ``plan_slices``."""
        seen = {name: sight.each for name, sight in self.sights.items()}
        return plan_slices(self.access, self.start, end, changes=changes, seen=seen)


def next_offset(
    access: Access, start: Offset, *, limit: int | None = None, within: Target | None = None
) -> Offset:
    """Return where the batch that begins at ``start`` ends; see ``Ahead``."""
    return Ahead.of(access, start, within).end(limit=limit, within=within)


def plan_slices(
    access: Access,
    start: Offset,
    end: Offset,
    *,
    changes: int,
    seen: Mapping[RangeId, int | None] = MappingProxyType({}),
) -> Sequence[Slice]:
    """Return what a batch reads, in slices of about so many changes where that can be done.

    Everything follows from the two offsets: the feed is not asked how far it is now. What was
    ``seen`` of transactions, how many changes they have, is no more than a hint.
    """
    slices: list[Slice] = []
    for name, mark in sorted(start.marks.items()):
        if mark.ended:
            continue
        assert name in end.marks, f"range {name} was left out before its end"
        goal = end.marks[name].position
        if access.positions.order(goal) <= access.positions.order(mark.position):
            continue
        slice_ = replace(_slice(start, name, goal), each=seen.get(name))
        slices += access.positions.cut(slice_, changes)
    return slices


def _slice(start: Offset, name: RangeId, end: Position) -> Slice:
    mark = start.marks[name]
    return Slice(
        range_id=name,
        start=mark.position,
        end=end,
        generation=mark.generation,
        low=mark.low,
        high=mark.high,
        feed=start.feed,
    )


def tasks(slices: Sequence[Slice], *, least: int) -> Sequence[tuple[Slice, ...]]:
    """Put small slices together, one after the other, until a task has ``least`` changes.

    A task costs as much as some thousand changes, however few it has.
    """
    found: list[tuple[Slice, ...]] = []
    gathered: list[Slice] = []
    count = 0
    for slice_ in slices:
        if slice_.changes >= least:
            found.append((slice_,))
            continue
        gathered.append(slice_)
        count += slice_.changes
        if count >= least:
            found.append(tuple(gathered))
            gathered, count = [], 0
    return [*found, tuple(gathered)] if gathered else found


def bundled(
    found: Sequence[tuple[Slice, ...]], most: int | None
) -> Sequence[tuple[Slice, ...]]:
    """Put tasks together until there are no more than ``most``, each about as large."""
    if most is None or len(found) <= most:
        return found
    bundles: list[list[Slice]] = [[] for _ in range(most)]
    sizes = [0] * most
    for task in sorted(found, key=_size, reverse=True):
        least = sizes.index(min(sizes))
        bundles[least] += task
        sizes[least] += 1 + _size(task)
    return [*map(tuple, bundles)]


def _size(task: Sequence[Slice]) -> int:
    return sum(x.changes for x in task)


def slices_to(
    access: Access, start: Offset, within: Target, *, changes: int = sys.maxsize
) -> Iterator[Slice]:
    """Yield what leads from an offset to a target, through ranges that end."""
    while True:
        ahead = Ahead.of(access, start, within)
        end = ahead.end(within=within)
        if end == start:
            return
        yield from ahead.slices(end, changes=changes)
        start = end


def _settled(access: Access, start: StartAt) -> Mapping[RangeId, Mark]:
    """Mark every range there is at one point. Ask again for one that ends before."""
    for _ in range(_LISTINGS - 1):
        try:
            return _settled_once(access, start)
        except RangeUnknown:
            continue
    return _settled_once(access, start)


def _settled_once(access: Access, start: StartAt) -> Mapping[RangeId, Mark]:
    ranges = access.ranges()
    numbers = generations(ranges)
    positions = access.starts([x.id for x in ranges], start)
    return {x.id: mark_of(access, x, positions[x.id], numbers[x.id]) for x in ranges}


def mark_of(access: Access, x: FeedRange, at: Position, generation: int) -> Mark:
    """Mark a range, with its bounds where they would be forgotten."""
    low, high = (x.low, x.high) if access.children_inherit_positions else ("", "")
    return Mark(position=at, generation=generation, low=low, high=high)


def _goal(
    access: Access, name: RangeId, mark: Mark, sight: Availability, within: Target | None
) -> Position | None:
    """Return how far to read a range at the most; ``None`` if not at all."""
    assert sight.end is not None, "something is there"
    if within is None:
        return sight.end
    until = within.point(access, name, mark)
    order = access.positions.order
    if until is None or order(until) <= order(mark.position):
        return None
    return min(sight.end, until, key=order)


def _reached(access: Access, sight: Availability, goal: Position, share: int) -> Position:
    """Return the position behind so many transactions, counted from the first that is there.

    What was written again since, or was never of this range, is not there, and no batch is
    spent on a gap before the first change.
    """
    assert sight.end is not None, "something is there"
    positions = access.positions
    counted = positions.before(sight.end, sight.lag - share)
    return positions.beside(min(counted, goal, key=positions.order), sight.end)


def _is_over(access: Access, before: Mark, after: Mark, sight: Availability) -> bool:
    """Whether a range has ended, and is read to its end."""
    gone = access.positions.distance(before.position, after.position)
    assert gone >= 0, f"a range would go back from {before} to {after}"
    return sight.children is not None and gone >= sight.lag
