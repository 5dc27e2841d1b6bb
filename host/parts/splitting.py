"""Splitting a range without the feed.

Leases of the parts are created where the stopped range stands, with it as their parent; they
wait. Then it is marked as ended, in one write: before that nothing has happened, after it the
parts are read. Nothing is lost or repeated, and the order by key holds as at each split.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from changefeed.feeds.feed import FeedRange, RangeId, Successor
from changefeed.host.events import HostEvents
from changefeed.host.parts.leased_feed import LeasedFeed, open_leases, refuse_taken
from changefeed.host.parts.stopping import finish, forget, stopped_ranges
from changefeed.host.retries import Retrier
from changefeed.host.workers.successors import create_successors
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.lease import HostName
from changefeed.leases.operations.pause import SPLITTING
from changefeed.leases.stores import require_continuation
from changefeed.runtime.errors import UserError

_LONGEST_CREATION = 60.0
_OPERATOR = HostName("operator")


async def split(leased: LeasedFeed, range_id: RangeId, into: int) -> Sequence[FeedRange]:
    """Replace the lease of a range by those of ``into`` parts; return these.

    Raise ``UserError`` where it cannot be done, and what feed and containers raise; the
    range is then read on as before.
    """
    leases = await leased.leases()
    (lease,) = open_leases(leases, [range_id], SPLITTING)
    cut = [replace(x, parents=(range_id,)) for x in leased.parts.cut(lease.range, into)]
    refuse_taken(leases, cut)
    async with stopped_ranges(leased, [range_id], SPLITTING) as (stopped,):
        start = require_continuation(stopped)
        successors = [Successor(range=x, start=start) for x in cut]
        await _create_parts(leased, stopped.range, successors)
    await finish(leased.container, stopped)
    return cut


async def _create_parts(
    leased: LeasedFeed, ended: FeedRange, successors: Sequence[Successor]
) -> None:
    """Raise ``UserError`` if not all of them wait where the range has come to."""
    events = HostEvents(_OPERATOR)
    try:
        async with asyncio.timeout(_LONGEST_CREATION):
            await create_successors(
                ended,
                successors,
                feed=leased.feed,
                container=leased.container,
                retrier=Retrier(events, Random()),  # noqa: S311 - of delays
                events=events,
                check=lambda: None,
            )
    except TimeoutError as error:
        raise ContainerUnavailable("the leases of the parts could not be created") from error
    for x in successors:
        stored = await leased.container.read(x.range.id)
        if stored is not None and stored.epoch:
            await forget(leased.container, stored)
        if stored is None or stored.ended or stored.epoch or stored.continuation != x.start:
            raise UserError(f"others have written the lease of {x.range.id}: try again")
