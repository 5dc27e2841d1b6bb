"""Leases that wait for a range whose lease was deleted by hand.

A lease that was never owned waits until the ranges it names as parents have ended. Where ranges
are read through those that hold their keys now (Cosmos DB), no host creates a parent without a
lease: its keys have a lease, which is this one. It would wait for ever, and its keys with it.

What its parent's owner made begins where that owner had got to, so nothing is skipped. A
listing may lack leases that are there: two in a row must show no holder of the keys, and the
parents must not be found by their names either.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from changefeed.feeds.feed import RangeId
from changefeed.host.workers.successors import with_unfinished_parents
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict, LeaseGone
from changefeed.leases.lease import Lease
from changefeed.leases.operations.look_up import look_up


async def free_from_deleted_parents(
    container: LeaseContainer,
    leases: Collection[Lease],
    again: Iterable[Lease],
    coming: Collection[RangeId] = (),
) -> bool:
    """Write without the parents that have no lease those leases that would wait for ever.

    Both are listings, ``again`` the younger; ``coming`` are ranges whose leases will be
    created. Return whether any lease was written.
    """
    either = [*leases, *again]
    known = {*(x.range_id for x in either), *coming}
    freed = False
    for lease in leases:
        if waits_for_ever(lease, either, coming):
            unlisted = [x for x in lease.range.parents if x not in known]
            if any([await look_up(container, x) for x in unlisted]):
                continue
            kept = with_unfinished_parents(lease.range, known)
            assert lease.epoch == 0, f"lease {lease.range_id!r} has been read: it does not wait"
            assert len(kept.parents) < len(lease.range.parents), (
                f"lease {lease.range_id!r} would go on to wait for {kept.parents}"
            )
            freed = await _replaced(container, replace(lease, range=kept)) or freed
    return freed


def waits_for_ever(
    lease: Lease, leases: Collection[Lease], coming: Collection[RangeId] = ()
) -> bool:
    """Whether it waits for a lease that is not there, and no other has its keys before it.

    Leases without bounds may hold any keys.
    """
    if lease.epoch or lease.ended or not lease.range.parents:
        return False  # nearly all, and each is asked about: without a look at all the others
    if {*(x.range_id for x in leases), *coming}.issuperset(lease.range.parents):
        return False
    others = [x for x in leases if not x.ended and x.range_id != lease.range_id]
    if not all(x.range.high for x in (lease, *others)):
        return False
    return not any(
        x.range.shares_keys_with(lease.range)
        and (x.epoch or lease.range_id not in x.range.parents)
        for x in others
    )


async def _replaced(container: LeaseContainer, wanted: Lease) -> bool:
    """Write it, unless it was written since it was listed."""
    try:
        await container.replace(wanted.without_continuation())
    except (LeaseConflict, LeaseGone):
        return False
    return True
