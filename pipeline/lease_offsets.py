"""Positions that cross between hosts and Spark: leases become offsets, and back.

Both hold the same continuations, so nothing is lost or repeated by crossing, as long as
the side that is left has stopped. What a lease says besides (that it is paused, who
owned it last) has no counterpart on Spark.

Both also say which ranges have ended, and here they differ. A host creates the leases of
the successors, and then marks its own as ended; the lease of a range that waits for a
parent may be there before any host may read it. A query introduces such a range when its
parents have ended, and not before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.feeds.parts import range_in_name
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.source.lineage import ancestors, generations, parents_first
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import mark_of
from changefeed.pipeline.source.reader import Access


async def read_leases(container: LeaseContainer) -> Sequence[Lease]:
    """Return every lease whole. Raise ``PipelineRefused`` while a host owns one."""
    listed = await container.list()
    owned = [x for x in listed if x.owner is not None and not x.ended]
    if owned:
        raise PipelineRefused(
            f"{owned[0].owner} owns the lease of range {owned[0].range_id!r}: stop the hosts "
            f"first, or both would go on from the same positions"
        )
    found = [await container.read(x.range_id) for x in listed]
    return [x for x in found if x is not None]


def offset_of(leases: Sequence[Lease], access: Access) -> Offset:
    """Return the offset of a query that continues where hosts have stopped."""
    if not leases:
        raise PipelineRefused("there are no leases to start from: has a host ever run here?")
    if not access.successors_inherit_positions:
        leases = _of_ranges(leases, access.ranges())
    begun = {x.range_id: x for x in leases if not _waits(x, leases, access)}
    at = {name: _position(x) for name, x in begun.items()}
    ranges = {**{x.range_id: x.range for x in leases}, **{x.id: x for x in access.ranges()}}
    numbers = generations(parents_first(ranges))
    marks = {x: mark_of(access, begun[x].range, at[x], numbers[x]) for x in begun}
    ended = {name for name, x in begun.items() if x.ended}
    return Offset(
        marks={x: mark.at_its_end() if x in ended else mark for x, mark in marks.items()},
        feed=access.identity(),
    )


def _of_ranges(leases: Sequence[Lease], ranges: Sequence[FeedRange]) -> Sequence[Lease]:
    """Put a part that has all keys of its range in the place of that: it is at its position.

    Raise ``PipelineRefused`` for other parts: a query reads ranges whole, from one position.
    """
    known = {x.id: x for x in ranges}
    found = {x.range_id: x for x in leases}
    for x in leases:
        whole = known.get(range_in_name(x.range_id))
        if x.range_id in known or whole is None:
            continue
        del found[x.range_id]
        if x.ended and (x.moved or not x.epoch):
            continue  # others have its keys
        if (whole.low, whole.high) != (x.range.low, x.range.high):
            raise PipelineRefused(
                f"hosts read {x.range_id!r}, which is a part of a range, and a query reads "
                f"ranges whole: merge its parts first, with changefeed merge, while hosts run; "
                f"then stop the hosts"
            )
        found[whole.id] = replace(x, range=whole)
    return [*found.values()]


def leases_of(offset: Offset, access: Access) -> Sequence[Lease]:
    """Return the leases of hosts that continue where a query has stopped.

    An ended range gets the lease of one that is over only if all that go on with its keys
    are being read. Else a host finds the end once more, and makes their leases itself: they
    have to start where it ended, and not where the feed of that host starts.
    """
    access.check_feed(offset)
    known = {x.id: x for x in access.ranges()}
    over = _over(offset, access, known)
    leases = [Lease(range=known[x], continuation=at).finished() for x, at in over.items()]
    for name, mark in offset.marks.items():
        if name in over or (mark.ended and access.successors_inherit_positions):
            continue
        found = known.get(name, FeedRange(id=name, low=mark.low, high=mark.high))
        read = tuple(x for x in found.parents if x in over)
        leases.append(Lease(range=replace(found, parents=read), continuation=mark.continuation))
    return leases


def _waits(lease: Lease, leases: Sequence[Lease], access: Access) -> bool:
    """Whether a query introduces the range of a lease by itself, or has done with it.

    The first while a parent is still to be read, by the rule of hosts. The second for a
    range whose successors take over its position: they have leases of their own.
    """
    if lease.ended:
        return access.successors_inherit_positions
    if lease.epoch > 0:
        return False
    if access.successors_inherit_positions:
        return any(
            not x.ended
            and x.range_id in lease.range.parents
            and x.range.shares_keys_with(lease.range)
            for x in leases
        )
    return not {x.range_id for x in leases if x.ended}.issuperset(lease.range.parents)


def _over(
    offset: Offset, access: Access, known: Mapping[RangeId, FeedRange]
) -> Mapping[RangeId, Continuation]:
    """Return where the ranges ended that hosts must not read again, as far as they are listed.

    A host would make leases for ended ranges that have none.
    """
    ended = {x: mark for x, mark in offset.marks.items() if mark.ended and x in known}
    over = {
        name: ended[name].continuation
        for name, sight in access.look(ended).items()
        if all(x.range.id in offset.marks for x in sight.successors or ())
    }
    left_out = ancestors(offset.marks, known) - offset.marks.keys()
    return {**access.starts(sorted(left_out), "now"), **over}


def _position(lease: Lease) -> Continuation:
    if lease.continuation is None:
        raise PipelineRefused(
            f"the lease of range {lease.range_id!r} has no position: run a host over it until "
            f"it has made a checkpoint"
        )
    return lease.continuation
