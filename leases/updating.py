"""Changing a lease that another host owns: a request, a pause, a new epoch.

Its owner writes it all the while, with every renewal and (in a combined container) every
checkpoint, so a version that was listed a moment ago may be gone. Read it, change it,
replace it, and again from the start if its owner was quicker.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.fleet import NEVER, is_placeholder
from changefeed.leases.lease import Lease, Member

T = TypeVar("T")
_TRIES = 20


async def update_lease(
    container: LeaseContainer,
    range_id: RangeId,
    change: Callable[[Lease], Lease | None],
    *,
    ended: bool = False,
) -> Lease | None:
    """Replace the lease as it is now by what ``change`` makes of it; return that.

    ``change`` returns ``None`` where there is nothing to do, and so does this, as well as
    for a lease that is gone or has ended; with ``ended``, for one that has not. Raise
    ``LeaseConflict`` if others kept writing to it, and what containers raise.
    """

    async def write(stored: Lease | None) -> Lease | None:
        if stored is None or stored.ended != ended:
            return None
        changed = change(stored.without_position())
        if changed is None:
            return None
        assert changed.version == stored.version, f"lease {range_id!r}: it is another copy"
        assert changed.range_id == range_id, f"lease {range_id!r} became {changed.range_id!r}"
        assert changed.epoch >= stored.epoch, (
            f"lease {range_id!r}: epoch {stored.epoch} would go back to {changed.epoch}"
        )
        return await container.replace(changed)

    try:
        return await _read_and_write(container, range_id, write)
    except LeaseConflict as refused:
        if refused.stored is None:
            return None
        raise


async def _read_and_write(
    container: LeaseContainer, range_id: RangeId, write: Callable[[Lease | None], Awaitable[T]]
) -> T:
    """Await ``write`` of the lease as it is stored now; again where others were quicker."""

    async def once() -> T:
        return await write(await container.read(range_id))

    retrying = AsyncRetrying(
        retry=retry_if_exception(_was_overtaken),
        stop=stop_after_attempt(_TRIES),
        wait=wait_random(0.01, 0.1),
        reraise=True,
    )
    return await retrying(once)


def _was_overtaken(error: BaseException) -> bool:
    return isinstance(error, LeaseConflict) and error.stored is not None


async def evict(
    container: LeaseContainer, lease: Lease, *, lost: Checkpoint | None = None
) -> Lease:
    """Begin an epoch of ``lease`` that belongs to no host; return it whole.

    The write has a name of its own, as each has: a former owner with a write of unknown
    fate must not take this one for it. ``lost`` is where the range goes on if its checkpoint
    is lost.
    """
    vacant = lease.evicted()
    if vacant.position is None and lost is not None:
        vacant = vacant.with_checkpoint(lost)
    assert vacant.owner is None, (
        f"lease {lease.range_id!r}: no epoch of {vacant.owner!r} begins"
    )
    assert vacant.epoch > lease.epoch, (
        f"lease {lease.range_id!r}: its owner could still checkpoint in epoch {lease.epoch}"
    )
    return await container.acquire(vacant.stamped(stamp=time.time()))


async def evict_now(
    container: LeaseContainer,
    range_id: RangeId,
    wanted: Callable[[Lease], bool],
    *,
    lost: Checkpoint | None = None,
) -> tuple[Lease, Lease] | None:
    """Evict the owner of a lease as it is now; return the lease before and after, both whole.

    ``wanted`` says whether to, and may raise why not; ``None`` is returned if not. ``lost`` is
    as for ``evict``. Raise ``LeaseConflict`` if the lease does not exist, or each write met one
    of another process, and what containers raise.
    """

    async def write(stored: Lease | None) -> tuple[Lease, Lease] | None:
        if stored is None:
            raise LeaseConflict(Lease(range=FeedRange(id=range_id)), None)
        if not wanted(stored):
            return None
        return stored, await evict(container, stored, lost=lost)

    return await _read_and_write(container, range_id, write)


async def fence_owner(container: LeaseContainer, lease: Lease, record: Member | None) -> bool:
    """Let no heartbeat count any more that the owner of an expired lease has sent by now.

    ``record`` is that of the owner, as it was listed when the lease had expired. Return
    ``False`` if it has changed since: the owner may live. Where the listing has none, one is
    created that stands in the way.
    """
    if lease.owner is None or lease.incarnation is None:
        return True  # no heartbeat keeps it
    if record is None:
        record = Member(
            name=lease.owner,
            incarnation=lease.incarnation,
            heartbeats=NEVER,
            stopping=True,
        )
        assert is_placeholder(record), f"hosts would take it for a heartbeat: {record}"
    return await container.put_member(record) is not None
