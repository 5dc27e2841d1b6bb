"""Positions that cross between hosts and Spark: leases become offsets, and back.

Both hold the same positions, so nothing is lost or repeated by crossing, as long as
the side that is left has stopped. What a lease says besides (that it is paused, who
owned it last) has no counterpart on Spark.

Both also say which ranges have ended, and go on in others then.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.feeds.parts import range_in_name
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease, RangeEnd
from changefeed.pipeline.checkpoint_dir import committed, last_begun, owned
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.lineage import ancestors, generations, parents_first
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import mark_of
from changefeed.pipeline.source.reader import Access
from changefeed.runtime.errors import UserError


def offset_of(leases: Sequence[Lease], access: Access) -> Offset:
    """Return the offset of a query that continues where hosts have stopped."""
    if not leases:
        raise UserError("there are no leases to start from: has a host ever run here?")
    inherits = access.children_inherit_positions
    keymap = KeyMap(leases, ranges=access.ranges())
    leases = [x.reopened() if _cut_off(x, keymap) else x for x in leases]
    leases += _to_come(keymap, inherits=inherits)
    if not inherits:
        leases = _of_ranges(leases, access.ranges())
    begun = {x.range_id: x for x in leases if not (x.ended and inherits)}
    at = {name: _position(x) for name, x in begun.items()}
    ranges = {**{x.range_id: x.range for x in leases}, **{x.id: x for x in access.ranges()}}
    numbers = generations(parents_first(ranges))
    marks = {x: mark_of(access, begun[x].range, at[x], numbers[x]) for x in begun}
    ended = {name for name, x in begun.items() if x.ended}
    return Offset(
        marks={x: mark.at_its_end() if x in ended else mark for x, mark in marks.items()},
        feed=access.identity(),
        epoch=max(x.epoch for x in leases),
        done={
            name: x.checkpoint
            for name, x in begun.items()
            if x.checkpoint is not None and x.checkpoint.high is not None and not x.ended
        },
    )


def _cut_off(lease: Lease, keymap: KeyMap) -> bool:
    """Whether a range has ended in a merge that was cut off before others of it had ended."""
    if lease.end is None or lease.end.by != "merge":
        return False
    (merged,) = (x.range for x in lease.end.children)
    return merged.id not in {x.child.range.id for x in keymap.new_leases} and not any(
        x.range.shares_keys_with(lease.range) and x.range.generation >= merged.generation
        for x in keymap.leases.values()
    )


def _to_come(keymap: KeyMap, *, inherits: bool) -> Iterator[Lease]:
    """Return the leases that hosts have not come to create, where a query cannot know them."""
    for lease in keymap.new_leases:
        child = lease.child
        if inherits or child.range.of is not None:
            yield Lease(range=child.range, checkpoint=Checkpoint(child.start))


def _of_ranges(leases: Sequence[Lease], ranges: Sequence[FeedRange]) -> Sequence[Lease]:
    """Put a part that has all keys of its range in the place of that: it is at its position.

    Raise ``UserError`` for other parts: a query reads ranges whole, from one position.
    """
    known = {x.id: x for x in ranges}
    found = {x.range_id: x for x in leases}
    for x in leases:
        whole = known.get(range_in_name(x.range_id))
        if x.range_id in known or whole is None:
            continue
        del found[x.range_id]
        if x.end is not None and x.end.by != "feed":
            continue  # others have its keys
        if (whole.low, whole.high) != (x.range.low, x.range.high):
            raise UserError(
                f"hosts read {x.range_id!r}, which is a part of a range, and a query reads "
                f"ranges whole: merge its parts first (changefeed range merge) while hosts "
                f"run; then stop the hosts"
            )
        found[whole.id] = replace(x, range=whole)
    return [*found.values()]


def leases_at(checkpoint: str, feed: str) -> Sequence[Lease]:
    """Return the leases of hosts that continue where the query of a checkpoint has stopped.

    Raise ``UserError`` if it runs, or has no batch that is done, and what opening the
    feed raises.
    """
    done = committed(checkpoint)
    if done is None:
        raise UserError(f"{checkpoint} has no batch that is done: there is nothing to take")
    with owned(checkpoint), query_advice(), closing(open_access(feed)) as access:
        epoch = done.offset.epoch + 1 + last_begun(checkpoint)
        return [replace(x, epoch=epoch) for x in leases_of(done.offset, access)]


def leases_of(offset: Offset, access: Access) -> Sequence[Lease]:
    """Return the leases of hosts that continue where a query has stopped.

    Where children do not take over the positions of ended ranges, these get the leases of
    ranges that have ended: a host creates what they go on in, as far as it is not there.
    """
    access.check_feed(offset)
    known = {x.id: x for x in access.ranges()}
    over = _over(offset, access, known)
    leases = [
        Lease(range=found, checkpoint=Checkpoint(at)).ended_in(end)
        for found, at, end in over.values()
    ]
    for name, mark in offset.marks.items():
        if name in over or (mark.ended and access.children_inherit_positions):
            continue
        found = known.get(name, FeedRange(id=name, low=mark.low, high=mark.high))
        leases.append(Lease(range=found, checkpoint=Checkpoint(mark.position)))
    return leases


def _over(
    offset: Offset, access: Access, known: Mapping[RangeId, FeedRange]
) -> Mapping[RangeId, tuple[FeedRange, Position, RangeEnd]]:
    """Return the ranges that have been read to their ends, as far as they are listed: where
    that was, and what they go on in. What was before them went on in them.
    """
    ended = {x: mark for x, mark in offset.marks.items() if mark.ended and x in known}
    over = {
        name: (known[name], ended[name].position, RangeEnd(children=sight.children))
        for name, sight in access.look(ended).items()
        if sight.children is not None
    }
    left_out = ancestors(offset.marks, known) - offset.marks.keys()
    for name, at in access.starts(sorted(left_out), "now").items():
        over[name] = known[name], at, RangeEnd(children=())
    return over


def _position(lease: Lease) -> Position:
    if lease.position is None:
        raise UserError(
            f"the lease of range {lease.range_id!r} has no position: run a host over it until "
            f"it has made a checkpoint"
        )
    return lease.position
