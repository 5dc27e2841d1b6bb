"""Taking a lease away from its owner, from outside of any host.

A new epoch begins, that belongs to no host: from then on what the former owner writes is
refused, checkpoints too, and any other host may acquire the lease at once. What it has in
hand is delivered again to the next owner.

Limits: a former owner that lives learns of it with its next listing, or its next write;
until then its observer is still called, and so may be that of the next owner.
The epoch in the observer's context distinguishes the two. A worker whose observer is stuck
without a time limit never ends; while it lives, its host holds on to a range that it
cannot read, and takes no new lease of that range, even if the plan gives it to this host.
"""

import time
from contextlib import suppress

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import CheckpointMissing, LeaseConflict, LeaseGone
from changefeed.leases.lease import Lease
from changefeed.leases.operations.look_up import look_up

_TRIES = 20  # its owner writes it, too


async def release(container: LeaseContainer, range_id: RangeId) -> Lease | None:
    """Take a lease from its owner; return it as it was, ``None`` if no host has it.

    Raise ``LeaseGone`` if there is no such lease, ``LeaseConflict`` if others kept writing
    to it, and what containers raise.
    """
    lease = Lease(range=FeedRange(id=range_id))
    for _ in range(_TRIES):
        stored = await look_up(container, range_id)
        if stored is None:
            raise LeaseGone(lease, "there is no such lease")
        if stored.owner is None:
            return None
        try:
            with suppress(CheckpointMissing):  # it is released all the same
                await vacate(container, stored)
        except LeaseConflict:
            continue
        return stored
    raise LeaseConflict(lease, f"its owner wrote it {_TRIES} times in a row")


async def vacate(
    container: LeaseContainer, lease: Lease, *, lost: Continuation | None = None
) -> Lease:
    """Begin an epoch of ``lease`` that belongs to no host; return it whole.

    The write has a name of its own, as each has: a former owner with a write of unknown
    fate must not take this one for it. ``lost`` is where the range goes on if its checkpoint
    is lost; without it, ``CheckpointMissing`` is raised then, and no host has the lease.
    """
    vacant = lease.vacated()
    if vacant.continuation is None and lost is not None:
        vacant = vacant.advanced_to(lost)
    assert vacant.owner is None, (
        f"lease {lease.range_id!r}: no epoch of {vacant.owner!r} begins"
    )
    assert vacant.epoch > lease.epoch, (
        f"lease {lease.range_id!r}: its owner could still checkpoint in epoch {lease.epoch}"
    )
    return await container.acquire(vacant.stamped(stamp=time.time()))
