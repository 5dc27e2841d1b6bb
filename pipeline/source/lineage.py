"""Ranges that end, and the children that own their keys next.

A range is read once all that had its keys before have been read to their ends: only so do
the changes of a key stay in order. Ranges are seen in two ways: as the feed lists them,
each with its parents, and as an ended one names its children.
"""

from collections.abc import Collection, Mapping, Sequence

from changefeed.feeds.feed import Child, FeedRange, RangeId
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.reader import Access, Availability
from changefeed.runtime.errors import UserError

_SHOWN = 10


def generations(ranges: Sequence[FeedRange]) -> Mapping[RangeId, int]:
    """Number ranges so that each has more than its parents; parents come before them.

    Where a feed leaves out ancestors, a range names them all among its parents, and their
    count serves.
    """
    found: dict[RangeId, int] = {}
    for x in ranges:
        listed = [found[parent] for parent in x.parents if parent in found]
        found[x.id] = 1 + max(listed) if listed else len(x.parents)
    return found


def parents_first(ranges: Mapping[RangeId, FeedRange]) -> Sequence[FeedRange]:
    """Put ranges in an order in which no child comes before a parent."""
    placed: dict[RangeId, FeedRange] = {}
    waiting = list(ranges.values())[::-1]
    while waiting:
        x = waiting[-1]
        before = [ranges[y] for y in x.parents if y in ranges and y not in placed]
        if x.id not in placed and before:
            waiting += before
        else:
            placed.setdefault(x.id, waiting.pop())
    return list(placed.values())


def ancestors(
    names: Collection[RangeId], known: Mapping[RangeId, FeedRange]
) -> Collection[RangeId]:
    """Return the ranges that had the keys of some before, as far as they are known."""
    found: set[RangeId] = set()
    waiting = list(names)
    while waiting:
        parents = known[x].parents if (x := waiting.pop()) in known else ()
        new = {y for y in parents if y in known} - found
        found |= new
        waiting += new
    return found


def narrowed(ranges: Sequence[FeedRange], only: Collection[RangeId]) -> Sequence[FeedRange]:
    """Leave some ranges and what descends from them; all, if none is named.

    Parents come before their children. Raise ``UserError`` for a name that is none.
    """
    if not only:
        return ranges
    kept = set(only)
    found = []
    for x in ranges:
        if x.id in kept or not kept.isdisjoint(x.parents):
            kept.add(x.id)
            found.append(x)
    known = {name for x in found for name in (x.id, *x.parents)}
    for name in only:
        if name not in known:
            names = ", ".join(x.id for x in ranges[:_SHOWN])
            more = f" and {len(ranges) - _SHOWN} more" if len(ranges) > _SHOWN else ""
            raise UserError(f"the feed has no range {name!r}. Its ranges: {names}{more}")
    return found


def with_children(
    access: Access,
    start: Offset,
    marks: Mapping[RangeId, Mark],
    sights: Mapping[RangeId, Availability],
) -> Offset:
    """Add the children of ended ranges, and drop the ranges no child waits for.

    Where positions are taken over, ``sights`` has none of ranges that had ended before.
    """
    following = {x: sights[x].children or () for x in sights if marks[x].ended}
    if access.children_inherit_positions:
        fresh = _taking_over(marks, following)
        done = {x for x, mark in start.marks.items() if mark.ended} - fresh.keys()
    else:
        fresh = _starting_over(access, marks, following)
        done = _droppable(start, sights)
    changed = {**marks, **fresh}
    if changed == start.marks:
        return start  # leaving something out is no reason for a batch
    return start.with_marks({x: mark for x, mark in changed.items() if x not in done})


def _taking_over(
    marks: Mapping[RangeId, Mark], following: Mapping[RangeId, Sequence[Child]]
) -> Mapping[RangeId, Mark]:
    """Introduce those that take over positions, each from the one range that held its keys.

    Only ranges that end just now are in ``following``. Later a feed would
    name the ranges that own its keys by then, which may be the children of its children.
    """
    return {
        x.range.id: Mark(
            position=x.start,
            generation=1 + marks[name].generation,
            low=x.range.low,
            high=x.range.high,
        )
        for name, children in following.items()
        for x in children
    }


def _starting_over(
    access: Access,
    marks: Mapping[RangeId, Mark],
    following: Mapping[RangeId, Sequence[Child]],
) -> Mapping[RangeId, Mark]:
    """Introduce those whose parents have all been read to their ends."""
    claims: dict[RangeId, list[tuple[Mark, Child]]] = {}
    for name, children in following.items():
        for child in children:
            if child.range.id not in marks:
                claims.setdefault(child.range.id, []).append((marks[name], child))
    waited_for = _unread(access, marks) if claims else set()
    return {
        name: Mark(
            position=min((x.start for _, x in found), key=access.positions.order),
            generation=1 + max(mark.generation for mark, _ in found),
        )
        for name, found in claims.items()
        if waited_for.isdisjoint(found[0][1].range.parents)
    }


def _unread(access: Access, marks: Mapping[RangeId, Mark]) -> set[RangeId]:
    """Return the ranges that are being read, or will be once their parents have ended.

    What was read and left out again is among them, but no range waits for it: it was left
    out only after all its children were introduced.
    """
    names = {x.id for x in access.ranges()} | marks.keys()
    return {x for x in names if x not in marks or not marks[x].ended}


def _droppable(start: Offset, sights: Mapping[RangeId, Availability]) -> set[RangeId]:
    """Return the ended ranges whose children are all introduced since the last batch.

    Not those with a parent that is still there, read to its end or not: it would introduce
    them again.
    """
    following = {x: sights[x].children or () for x in start.marks}
    children = {x.range.id for some in following.values() for x in some}
    return {
        name
        for name, mark in start.marks.items()
        if mark.ended and name not in children
        if all(x.range.id in start.marks for x in following[name])
    }
