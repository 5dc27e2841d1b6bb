"""Splitting a range without the feed.

Leases of the parts are created where the stopped range stands, with it as their parent; they
wait. Then it is marked as ended, in one write: before that nothing has happened, after it the
parts are read. Nothing is lost or repeated, and the order by key holds as at each split.
"""

from collections.abc import Sequence
from random import Random

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.events import HostEvents
from changefeed.host.parts.leased_feed import LeasedFeed, open_leases
from changefeed.host.parts.stopping import finish, stopped_ranges
from changefeed.host.retries import Retrier
from changefeed.host.workers.parts import create_parts, parts_of, refuse_taken
from changefeed.leases.lease import HostName, require_continuation
from changefeed.leases.operations.pause import SPLITTING, Claim

_OPERATOR = HostName("operator")


async def split(leased: LeasedFeed, range_id: RangeId, into: int) -> Sequence[FeedRange]:
    """Replace the lease of a range by those of ``into`` parts; return these.

    Raise ``UserError`` where it cannot be done, and what feed and containers raise; the
    range is then read on as before.
    """
    leases = await leased.leases()
    (lease,) = open_leases(leases, [range_id], SPLITTING)
    cut = parts_of(leased.feed, lease.range, into)
    refuse_taken(leases, cut)
    async with stopped_ranges(leased, [range_id], Claim(SPLITTING)) as stopped:
        (whole,) = stopped.leases
        events = HostEvents(_OPERATOR)
        await create_parts(
            whole,
            cut,
            require_continuation(whole),
            feed=leased.feed,
            container=leased.container,
            retrier=Retrier(events, Random()),  # noqa: S311 - of delays
            events=events,
            check=stopped.check,
        )
    await finish(leased.container, whole)
    return cut
