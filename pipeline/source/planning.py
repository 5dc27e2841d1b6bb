"""Deciding where the next batch ends. The feed is asked, nothing is remembered.

What is settled here is the end of every range, before anything is read: Spark logs it and,
after a crash, asks for the very same batch again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from feeds.feed import Continuation, FeedRange, RangeId, StartAt, Successor

from .access import Access, Sight, Slice
from .offsets import Mark, Offset

Name = TypeVar("Name", bound=str)
Target = Mapping[RangeId, int]
"""The sequence up to which each range is read at the most; a range not in it not at all."""


def fair_shares(lags: Mapping[Name, int], limit: int | None) -> Mapping[Name, int]:
    """Share ``limit`` among ranges by their lags: exactly, and at least one for each.

    With fewer changes to share than ranges that wait, the longest waiting lines go first.
    """
    waiting = {name: lag for name, lag in lags.items() if lag > 0}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return waiting
    if limit < len(waiting):
        first = sorted(waiting, key=lambda x: (-waiting[x], x))[:limit]
        return dict.fromkeys(first, 1)
    rest, left = total - len(waiting), limit - len(waiting)
    exact = {name: left * (lag - 1) for name, lag in waiting.items()}
    shares = {name: 1 + x // rest for name, x in exact.items()}
    spare = limit - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda x: (-(exact[x] % rest), x))
    for name in by_remainder[:spare]:
        shares[name] += 1
    return shares


def generations(ranges: Sequence[FeedRange]) -> Mapping[RangeId, int]:
    """Number ranges so that each has more than its parents; parents stand before them.

    Where a feed leaves out ancestors, a range names them all among its parents, and their
    count serves.
    """
    found: dict[RangeId, int] = {}
    for x in ranges:
        listed = [found[parent] for parent in x.parents if parent in found]
        found[x.id] = 1 + max(listed) if listed else len(x.parents)
    return found


def first_offset(access: Access, start: StartAt) -> Offset:
    """Return where reading begins: of each line of descent, the oldest with a change left."""
    ranges = access.ranges()
    numbers = generations(ranges)
    marks = {x.id: _mark(access, x, access.settle(x.id, start), numbers[x.id]) for x in ranges}
    sights = access.look(marks)
    chosen: dict[RangeId, Mark] = {}
    over: dict[RangeId, Mark] = {}
    for x in ranges:
        if any(parent in marks and parent not in over for parent in x.parents):
            continue  # it is introduced once its parents have been read
        if sights[x.id].lag == 0 and sights[x.id].successors is not None:
            over[x.id] = marks[x.id].at_its_end()
        else:
            chosen[x.id] = marks[x.id]
    reached = chosen.keys() | over.keys()
    awaited = {  # a successor of theirs still waits for another parent
        name: mark
        for name, mark in over.items()
        if any(x.range.id not in reached for x in sights[name].successors or ())
    }
    return Offset(marks=chosen | awaited)


def target_at(access: Access, end: StartAt | Offset) -> Target:
    """Return how far to read to get to a point, for every range there is now."""
    if isinstance(end, Offset):
        return {name: access.order(x.continuation) for name, x in end.marks.items()}
    return {x.id: access.order(access.settle(x.id, end)) for x in access.ranges()}


def next_offset(
    access: Access, start: Offset, *, limit: int | None = None, within: Target | None = None
) -> Offset:
    """Return where the batch that begins at ``start`` ends: ``start`` if there is nothing."""
    access.recall(start.marks)
    sights = access.look(start.marks)
    rooms = {
        name: sights[name].lag
        if within is None
        else _room(access, mark, sights[name], within.get(name))
        for name, mark in start.marks.items()
        if not mark.ended
    }
    marks = dict(start.marks)
    for name, share in fair_shares(rooms, limit).items():
        marks[name] = _advanced(
            access,
            name,
            marks[name],
            count=None if limit is None else share,
            until=None if within is None else within[name],
        )
    for name, mark in start.marks.items():
        gone = access.order(marks[name].continuation) - access.order(mark.continuation)
        if sights[name].successors is not None and gone >= sights[name].lag:
            marks[name] = marks[name].at_its_end()
    return _with_successors(access, start, marks, sights)


def inherited(access: Access, within: Target, start: Offset, end: Offset) -> Target:
    """Let the successors that ``end`` introduces take over the target of their parents.

    Only those that take over the position as well: what a feed begins anew in a successor
    is younger than any target that does not name it.
    """
    ended = [(x, mark) for x, mark in end.marks.items() if mark.ended and x in within]
    found = dict(within)
    for name in end.marks.keys() - start.marks.keys() - within.keys():
        continuation = end.marks[name].continuation
        heirs = [within[x] for x, mark in ended if mark.continuation == continuation]
        if heirs and max(heirs) > access.order(continuation):
            found[name] = max(heirs)
    return found


def slices(access: Access, start: Offset, end: Offset, *, changes: int) -> Sequence[Slice]:
    """Return what a batch reads, in pieces of about so many changes where that can be done.

    Everything follows from the two offsets: the feed is not asked how far it is now.
    """
    pieces: list[Slice] = []
    for name, mark in sorted(start.marks.items()):
        goal = end.marks.get(name)
        if goal is None:
            assert mark.ended, f"range {name} was left out before its end"
            continue
        if access.order(goal.continuation) <= access.order(mark.continuation):
            continue
        piece = Slice(
            range_id=name,
            start=mark.continuation,
            end=goal.continuation,
            generation=mark.generation,
            low=mark.low,
            high=mark.high,
        )
        pieces += access.cut(piece, changes)
    return pieces


def tasks(pieces: Sequence[Slice], *, least: int) -> Sequence[tuple[Slice, ...]]:
    """Put small slices together, one after the other, until a task has ``least`` changes.

    A task costs about as much as some thousand changes. A slice whose size is not known
    gets a task of its own.
    """
    found: list[tuple[Slice, ...]] = []
    gathered: list[Slice] = []
    count = 0
    for piece in pieces:
        if piece.changes is None or piece.changes >= least:
            found.append((piece,))
            continue
        gathered.append(piece)
        count += piece.changes
        if count >= least:
            found.append(tuple(gathered))
            gathered, count = [], 0
    return [*found, tuple(gathered)] if gathered else found


def batches(access: Access, start: Offset, within: Target) -> Iterator[tuple[Offset, Offset]]:
    """Yield the steps that lead from an offset to a target, through ranges that end."""
    while (end := next_offset(access, start, within=within)) != start:
        yield start, end
        within = inherited(access, within, start, end)
        start = end


def _mark(access: Access, x: FeedRange, at: Continuation, generation: int) -> Mark:
    low, high = (x.low, x.high) if access.keeps_bounds else ("", "")
    return Mark(continuation=at, generation=generation, low=low, high=high)


def _room(access: Access, mark: Mark, sight: Sight, until: int | None) -> int:
    """Return how many changes lie behind a mark, but no more than up to a target."""
    if until is None:
        return 0
    return max(0, min(sight.lag, until - access.order(mark.continuation)))


def _advanced(
    access: Access, name: RangeId, mark: Mark, *, count: int | None, until: int | None
) -> Mark:
    end = access.advance(name, mark.continuation, count, until)
    assert access.order(end) >= access.order(mark.continuation), (
        f"range {name} would go back from {mark.continuation} to {end}"
    )
    return mark.at(end)


def _with_successors(
    access: Access,
    start: Offset,
    marks: Mapping[RangeId, Mark],
    sights: Mapping[RangeId, Sight],
) -> Offset:
    """Introduce what goes on with ended ranges, and leave out those nobody waits for."""
    following = {x: sights[x].successors or () for x, mark in marks.items() if mark.ended}
    claims: dict[RangeId, list[tuple[Mark, Successor]]] = {}
    for name, successors in following.items():
        for successor in successors:
            claims.setdefault(successor.range.id, []).append((marks[name], successor))
    waited_for = _unread(access, marks) if claims.keys() - marks.keys() else set()
    fresh: dict[RangeId, Mark] = {}
    for name, found in claims.items():
        child = found[0][1].range
        if name in marks or waited_for.intersection(child.parents):
            continue
        begin = min((x.start for _, x in found), key=access.order)
        generation = 1 + max(mark.generation for mark, _ in found)
        fresh[name] = _mark(access, child, begin, generation)
    changed = {**marks, **fresh}
    if changed == start.marks:
        return start  # leaving something out is no reason for a batch
    done = _droppable(start, following)
    return Offset(marks={x: mark for x, mark in changed.items() if x not in done})


def _unread(access: Access, marks: Mapping[RangeId, Mark]) -> set[RangeId]:
    """Return the ranges that are being read, or will be once their parents have ended.

    What was read and left out again is among them, but keeps nobody waiting: it was left
    out only after all that go on with its keys were introduced.
    """
    names = {x.id for x in access.ranges()} | marks.keys()
    return {x for x in names if x not in marks or not marks[x].ended}


def _droppable(start: Offset, following: Mapping[RangeId, Sequence[Successor]]) -> set[RangeId]:
    """Return the ended ranges whose successors are all introduced since the last batch.

    Not those with a parent that is still there: it would introduce them again.
    """
    ended = {x for x, mark in start.marks.items() if mark.ended}
    children = {x.range.id for name in ended for x in following[name]}
    return {
        name
        for name in ended - children
        if all(x.range.id in start.marks for x in following[name])
    }
