"""The leases of parts that a range is split into without the feed, created before it ends.

They wait for the range where its reader is, with it as their parent. Then it is marked as
ended, in one write: before that nothing has happened, after it the parts are read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from changefeed.feeds.feed import Continuation, Feed, FeedRange, Successor
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.workers.successors import create_successors, no_proof
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict, LeaseGone
from changefeed.leases.lease import Lease
from changefeed.leases.load import coarse, known
from changefeed.runtime.errors import UserError

_LONGEST_CREATION = 60.0


def parts_of(feed: Feed, found: FeedRange, into: int) -> Sequence[FeedRange]:
    """Cut a range into parts that wait for it. Raise ``FeedRefused`` where it cannot be cut."""
    parts = feed.cut(found, into)
    assert len(parts) == into, f"range {found.id!r} was cut into {len(parts)}, not {into}"
    assert (parts[0].low, parts[-1].high) == (found.low, found.high), (
        f"{parts} are not all keys of {found}"
    )
    assert all(x.high == y.low for x, y in pairwise(parts)), (
        f"{parts} leave out keys of {found}"
    )
    return [replace(x, parents=(found.id,)) for x in parts]


def refuse_taken(leases: Collection[Lease], wanted: Sequence[FeedRange]) -> None:
    """Raise ``UserError`` if a range to be has a lease from before, that was read."""
    read = {x.range_id for x in leases if x.epoch}
    for found in wanted:
        if found.id in read:
            raise UserError(
                f"there is a lease of range {found.id} already, from an earlier split or "
                f"merge: hosts delete it once what came of it has a checkpoint. Try again then"
            )


async def create_parts(
    whole: Lease,
    cut: Sequence[FeedRange],
    start: Continuation,
    *,
    feed: Feed,
    container: LeaseContainer,
    retrier: Retrier,
    events: HostEvents,
    check: Callable[[], None] = lambda: None,
    prove: Callable[[], Awaitable[None]] = no_proof,
) -> None:
    """Raise ``UserError`` if not all of them wait where the range has come to, and
    ``ContainerUnavailable`` if that takes too long. ``check`` and ``prove`` are those of
    ``create_successors``.
    """
    load = known(whole.load)
    try:
        async with asyncio.timeout(_LONGEST_CREATION):
            await create_successors(
                whole.range,
                [Successor(range=x, start=start) for x in cut],
                feed=feed,
                container=container,
                retrier=retrier,
                events=events,
                check=check,
                prove=prove,
                load=None if load is None else coarse(load / len(cut), None),
            )
    except TimeoutError as error:
        raise ContainerUnavailable("the leases of the parts could not be created") from error
    for x in cut:
        stored = await container.read(x.id)
        if stored is not None and stored.epoch:
            await forget(container, stored)
        if stored is None or stored.ended or stored.epoch or stored.continuation != start:
            raise UserError(f"others have written the lease of {x.id}: try again")


async def forget(container: LeaseContainer, created: Lease) -> None:
    """Delete what we have created with an epoch that it should not have: where checkpoints are
    kept apart, one was left behind under its name. No host may begin there.
    """
    if created.owner is None:
        with suppress(LeaseConflict, LeaseGone):
            await container.delete(created)
