"""How ranges are stopped from outside of any host, to be split or merged, and then ended.

A range is paused first: its owner finishes what it has in hand, checkpoints and releases it. A
new epoch without an owner follows, so that no write of a former owner counts any more. An owner
that does not release is dead or stuck, and loses its lease as to a steal: after
``longest_handoff``.

Two runs of a command, by two people or by one who asks again, never work on one range at once.
Each pauses it with a reason of its own, and takes it from one that has done so before: whose
next write names a version that has moved on, and is refused.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from changefeed.feeds.feed import Feed, FeedRange, RangeId
from changefeed.fleet.claims import Claim, go_on, is_paused_by
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict, checkpoint_is_lost
from changefeed.leases.fleet import foreign_owners
from changefeed.leases.lease import Lease, RangeEnd
from changefeed.leases.updating import evict_now, update_lease
from changefeed.runtime.clock import elapsed_time
from changefeed.runtime.errors import StoreUnavailable, UserError

_TRIES: Final = 20
"""How often a write is tried: others write these leases, too."""
_LOOK = 0.25
_MAX_REST = 5.0
_AGAIN = "range {} is left as it is, as the lease container does not answer: run this again"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedFeed:
    """What an operator splits and merges ranges of.

    An owner that does not release a range within ``longest_handoff`` seconds loses it. ``say``
    is told what a command waits for.
    """

    feed: Feed
    container: LeaseContainer
    longest_handoff: float
    say: Callable[[str], None] = lambda _: None

    async def leases(self) -> Sequence[Lease]:
        """List all, and let the feed look at its ranges. Raise ``UserError`` where hosts of
        another kind own some.
        """
        leases = await self.container.list()
        await self.feed.ranges()
        if foreign := foreign_owners(leases):
            raise UserError(
                f"{', '.join(sorted(foreign))} is a host of another kind, which would read on "
                f"what was split or merged: stop those hosts first"
            )
        return leases


@asynccontextmanager
async def stopped_ranges(
    leased: LeasedFeed, range_ids: Sequence[RangeId], claim: Claim
) -> AsyncIterator[Sequence[Lease]]:
    """Stop ranges; yield their leases, whole, in an epoch that belongs to no host.

    They stay so after the block, and are resumed if it raises.
    """
    container = leased.container
    try:
        for range_id in sorted(range_ids):  # else two runs may have one each
            await claim_range(container, range_id, claim)
        until = elapsed_time() + leased.longest_handoff
        for range_id in range_ids:
            await _left_by_owner(leased, range_id, claim, until=until)
        yield [await _evicted(container, x, claim) for x in range_ids]
    except BaseException:
        for range_id in range_ids:
            with suppress(StoreUnavailable, LeaseConflict):
                await go_on(container, [range_id], claim.reason)
        raise


async def claim_range(container: LeaseContainer, range_id: RangeId, claim: Claim) -> None:
    """Pause a range for one run of a command. Another run that had it has died, or ends with an
    error. Raise ``UserError`` for what cannot be claimed.
    """
    await whole_lease(container, range_id)

    def claimed(lease: Lease) -> Lease:
        if lease.paused is not None and not is_paused_by(claim.command, lease):
            raise UserError(f"range {range_id} was paused meanwhile ({lease.paused})")
        return lease.paused_because(claim.reason)

    await update_lease(container, range_id, claimed)


async def _left_by_owner(
    leased: LeasedFeed, range_id: RangeId, claim: Claim, *, until: float
) -> None:
    """Wait for the owner of a range to release it, but not past ``until``."""
    asked = None
    while (stored := await still_claimed(leased.container, range_id, claim)).owner is not None:
        if elapsed_time() >= until:
            return
        if stored.owner != asked:
            leased.say(f"waiting until {stored.owner} has finished what it has of {range_id}")
            asked = stored.owner
        await asyncio.sleep(_LOOK)


async def _evicted(container: LeaseContainer, range_id: RangeId, claim: Claim) -> Lease:
    taken = await evict_now(container, range_id, partial(_is_claimed, claim))
    assert taken is not None, f"range {range_id!r} is claimed, or it was raised why not"
    return taken[1]


async def still_claimed(container: LeaseContainer, range_id: RangeId, claim: Claim) -> Lease:
    """Return the lease of a range, whole. Raise ``UserError`` if others have it by now."""
    stored = await whole_lease(container, range_id)
    _is_claimed(claim, stored)
    return stored


def _is_claimed(claim: Claim, lease: Lease) -> bool:
    if lease.ended:
        raise UserError(f"range {lease.range_id} has ended meanwhile: others have its keys now")
    if lease.paused != claim.reason:
        raise UserError(f"range {lease.range_id} was resumed meanwhile, or paused by others")
    return True


async def whole_lease(container: LeaseContainer, range_id: RangeId) -> Lease:
    stored = await container.read(range_id)
    if stored is None:
        gone = Lease(range=FeedRange(id=range_id))
        raise LeaseConflict(gone, None, "deleted meanwhile")
    if stored.position is None:
        raise UserError(checkpoint_is_lost(range_id))
    return stored


async def finish(container: LeaseContainer, stopped: Lease, end: RangeEnd) -> None:
    """End a stopped range, if no other has written to it since."""
    ended = stopped.ended_in(end).without_position().stamped(stamp=time.time())

    def give_up(_: RetryCallState) -> None:
        raise StoreUnavailable(_AGAIN.format(stopped.range_id))

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(StoreUnavailable),
        stop=stop_after_attempt(_TRIES),
        wait=wait_exponential(multiplier=_LOOK, max=_MAX_REST),
        retry_error_callback=give_up,
    )
    await retrying(partial(_end, container, ended))


async def _end(container: LeaseContainer, ended: Lease) -> None:
    """Write the end of a range; a conflict may be one with our own write, unanswered. Another's
    end is none of ours: the range went on in something else then.
    """
    try:
        await container.replace(ended)
    except LeaseConflict as refused:
        if refused.stored is None:
            raise
        if refused.stored.write_id != ended.write_id:
            reason = "it was resumed meanwhile, or another command has it in hand"
            raise LeaseConflict(ended, refused.stored, reason) from refused
