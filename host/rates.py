"""How fast ranges get on, between two looks at a fleet."""

from collections.abc import Mapping

from changefeed.feeds.backlog import changes_between
from changefeed.feeds.feed import Continuation, Feed, FeedRange, RangeId
from changefeed.host.snapshot import LeaseStatus, Snapshot
from changefeed.runtime.for_each import for_each

_AT_ONCE = 16


async def rates(feed: Feed, before: Snapshot, after: Snapshot) -> Mapping[str, float]:
    """Return the changes a second that were checkpointed, by range, in the feed's measure.

    A position cannot be counted, but what lies behind it can: the difference between two is
    what was done. What was not there before, has ended, or was moved back is left out.
    """
    seconds = (after.at - before.at).total_seconds()
    if seconds <= 0:
        return {}
    known = {x.range: x.continuation for x in before.leases}

    async def done(lease: LeaseStatus) -> int | None:
        return await _between(feed, lease, known[lease.range])

    leases = [x for x in after.leases if x.range in known and not x.ended]
    counts = zip(leases, await for_each(leases, done, at_once=_AT_ONCE), strict=True)
    return {x.range: count / seconds for x, count in counts if count is not None and count >= 0}


async def _between(feed: Feed, lease: LeaseStatus, old: str | None) -> int | None:
    new = lease.continuation
    if old is None or new is None:
        return None
    if old == new:
        return 0
    read = FeedRange(id=RangeId(lease.range), low=lease.low, high=lease.high)
    return await changes_between(feed, read, Continuation(old), Continuation(new))
