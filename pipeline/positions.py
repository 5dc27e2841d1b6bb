"""Positions that cross between hosts and Spark: leases become offsets, and back.

Both hold the same continuations, so nothing is lost or repeated by crossing, as long as
the side that is left does not go on.
"""

from collections.abc import Mapping, Sequence

from feeds.feed import FeedRange, RangeId
from leases.container import LeaseContainer
from leases.lease import Lease

from .errors import PipelineRefused
from .source.access import Access
from .source.offsets import Mark, Offset
from .source.planning import generations


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
    """Return the offset of a query that goes on where hosts have stopped."""
    if not leases:
        raise PipelineRefused("there are no leases to start from: has a host ever run here?")
    bounds = {x.range_id: x.range for x in leases}
    access.recall({x.range_id: _mark(x, 0, access) for x in leases})
    ranges = {**bounds, **{x.id: x for x in access.ranges()}}
    numbers = generations(_parents_first(ranges))
    return Offset(marks={x.range_id: _mark(x, numbers[x.range_id], access) for x in leases})


def leases_of(offset: Offset, access: Access) -> Sequence[Lease]:
    """Return the leases of hosts that go on where a query has stopped."""
    access.recall(offset.marks)
    known = {x.id: x for x in access.ranges()}
    found: list[Lease] = []
    for name, mark in offset.marks.items():
        own = FeedRange(id=name, low=mark.low, high=mark.high)
        lease = Lease(range=known.get(name, own), continuation=mark.continuation)
        found.append(lease.finished() if mark.ended else lease)
    return found


async def write_leases(container: LeaseContainer, leases: Sequence[Lease]) -> None:
    """Store new leases. Raise ``PipelineRefused`` if there is one already."""
    if await container.list():
        raise PipelineRefused(
            "there are leases already, and they may be further on: name a container without any"
        )
    for lease in leases:
        await container.create(lease)


def _mark(lease: Lease, generation: int, access: Access) -> Mark:
    if lease.continuation is None:
        raise PipelineRefused(f"the lease of range {lease.range_id!r} has no position")
    low, high = (lease.range.low, lease.range.high) if access.keeps_bounds else ("", "")
    return Mark(
        continuation=lease.continuation,
        ended=lease.ended,
        generation=generation,
        low=low,
        high=high,
    )


def _parents_first(ranges: Mapping[RangeId, FeedRange]) -> Sequence[FeedRange]:
    """Put ranges in an order in which no child stands before a parent."""
    placed: dict[RangeId, FeedRange] = {}

    def place(x: FeedRange) -> None:
        for parent in x.parents:
            if parent in ranges and parent not in placed:
                place(ranges[parent])
        placed[x.id] = x

    for x in ranges.values():
        if x.id not in placed:
            place(x)
    return list(placed.values())
