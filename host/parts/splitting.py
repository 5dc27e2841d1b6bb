"""Splitting a range without the feed.

The range is stopped, and ends where it stands in sub-ranges of its keys, in one write: before
that nothing has happened, after it they are read. Nothing is lost or repeated, and the order by
key holds as at each split.
"""

from collections.abc import Sequence

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.parts.leased_feed import LeasedFeed, open_leases
from changefeed.host.parts.stopping import finish, stopped_ranges
from changefeed.host.workers.hot_split import split_end
from changefeed.leases.lease import require_continuation
from changefeed.leases.operations.pause import SPLITTING, Claim


async def split(leased: LeasedFeed, range_id: RangeId, into: int) -> Sequence[FeedRange]:
    """Replace a range by ``into`` sub-ranges; return these.

    Raise ``UserError`` where it cannot be done, and what feed and containers raise; the
    range is then read on as before.
    """
    leases = await leased.leases()
    (lease,) = open_leases(leases, [range_id], SPLITTING)
    leased.feed.split(lease.range, into)  # refused before it is stopped
    async with stopped_ranges(leased, [range_id], Claim(SPLITTING)) as stopped:
        (whole,) = stopped.leases
        end = split_end(leased.feed, whole.range, into, require_continuation(whole))
        stopped.check()
        await finish(leased.container, whole, end)
    return [x.range for x in end.children]
