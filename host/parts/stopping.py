"""How ranges are stopped from outside of any host, to be split or merged, and then ended.

A range is paused first: its owner finishes what it has in hand, checkpoints and releases it. A
new epoch without an owner follows, so that no write of a former owner counts any more. An owner
that does not release is dead or stuck, and loses its lease as to a steal: after
``max_handoff_time`` plus the expiration.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import uuid4

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.parts.leased_feed import LeasedFeed
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict, LeaseGone
from changefeed.leases.lease import Lease, WriteId
from changefeed.leases.operations.pause import pause
from changefeed.leases.operations.release import vacate
from changefeed.leases.operations.update import update_lease
from changefeed.runtime.errors import UserError

TRIES: Final = 20
"""How often a write is tried: others write these leases, too."""
_LOOK = 0.25
_LONGEST_REST = 5.0
_AGAIN = "range {} is left as it is, as the lease container does not answer: run this again"


@asynccontextmanager
async def stopped_ranges(
    leased: LeasedFeed, range_ids: Sequence[RangeId], reason: str
) -> AsyncIterator[Sequence[Lease]]:
    """Stop ranges; yield their leases, whole, in an epoch that belongs to no host.

    They stay so after the block, and are resumed if it raises.
    """
    container = leased.container
    longest = leased.settings.max_handoff_time + leased.settings.expiration
    until = asyncio.get_running_loop().time() + longest
    try:
        await pause(container, range_ids, reason)
        yield [await _vacated(container, x, reason, until=until) for x in range_ids]
    except BaseException:
        for range_id in range_ids:
            with suppress(ContainerUnavailable, LeaseConflict):
                await go_on(container, [range_id], reason)
        raise


async def go_on(container: LeaseContainer, range_ids: Iterable[RangeId], reason: str) -> None:
    """Resume those of the ranges that are stopped for this reason."""
    for range_id in range_ids:
        await update_lease(container, range_id, partial(_resumed, reason))


def _resumed(reason: str, lease: Lease) -> Lease | None:
    return lease.paused_because(None) if lease.paused == reason else None


async def _vacated(
    container: LeaseContainer, range_id: RangeId, reason: str, *, until: float
) -> Lease:
    """Wait for the owner of a paused range to release it, but not past ``until``."""
    clock = asyncio.get_running_loop().time
    lost: list[LeaseConflict] = []
    while len(lost) < TRIES:
        stored = await container.read(range_id)
        if stored is None:
            raise LeaseGone(Lease(range=FeedRange(id=range_id)), "deleted meanwhile")
        if stored.ended:
            raise UserError(f"range {range_id} has ended meanwhile: others have its keys now")
        if stored.paused != reason:
            raise UserError(f"range {range_id} was resumed meanwhile, or paused by others")
        if stored.owner is not None and clock() < until:
            await asyncio.sleep(_LOOK)
            continue
        try:
            return await vacate(container, stored)
        except LeaseConflict as conflict:
            lost.append(conflict)
    raise lost[-1]


async def finish(container: LeaseContainer, stopped: Lease) -> None:
    """Mark a stopped range as ended, if no other has written to it since."""
    ended = written(replace(stopped.split_up(), paused=None).without_continuation())
    end = partial(_end, container, ended)
    await _insist(stopped.range_id, end, although=(ContainerUnavailable,))


async def reopen(container: LeaseContainer, range_id: RangeId) -> None:
    """Let a part go on that was ended for a merge which did not come about."""
    begin = partial(_begin_again, container, range_id)
    await _insist(range_id, begin, although=(ContainerUnavailable, LeaseConflict))


async def _insist(
    range_id: RangeId,
    write: Callable[[], Awaitable[None]],
    *,
    although: tuple[type[Exception], ...],
) -> None:
    """Try a write again although it failed; raise ``ContainerUnavailable`` if it goes on."""

    def give_up(_: RetryCallState) -> None:
        raise ContainerUnavailable(_AGAIN.format(range_id))

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(although),
        stop=stop_after_attempt(TRIES),
        wait=wait_exponential(multiplier=_LOOK, max=_LONGEST_REST),
        retry_error_callback=give_up,
    )
    await retrying(write)


async def _end(container: LeaseContainer, ended: Lease) -> None:
    """Write the end of a range; a conflict may be one with our own write, unanswered. Another's
    end is none of ours: the range went on in something else then.
    """
    try:
        await container.replace(ended)
    except LeaseConflict:
        stored = await container.read(ended.range_id)
        if stored is not None and stored.write_id != ended.write_id:
            raise


async def _begin_again(container: LeaseContainer, range_id: RangeId) -> None:
    stored = await container.read(range_id)
    if stored is not None and stored.ended:
        again = replace(stored.without_continuation(), ended=False, paused=None)
        await container.replace(written(again))


def written(lease: Lease) -> Lease:
    return lease.stamped(write_id=WriteId(uuid4().hex), stamp=time.time())
