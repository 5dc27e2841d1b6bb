"""How fast ranges get on, between two looks at a fleet."""

import asyncio
from collections.abc import Mapping

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Continuation, Feed, RangeId
from changefeed.host.snapshot import Snapshot

_AT_ONCE = 16


async def rates(feed: Feed, before: Snapshot, after: Snapshot) -> Mapping[str, float]:
    """Return the changes a second that were checkpointed, by range, in the feed's measure.

    A position cannot be counted, but what lies behind it can: the difference between two is
    what was done. What was not there before, has ended, or was moved back is left out.
    """
    seconds = (after.at - before.at).total_seconds()
    known = {x.range: x for x in before.leases}
    found: dict[str, float] = {}
    few = asyncio.Semaphore(_AT_ONCE)

    async def measure(name: str, old: str | None, new: str | None) -> None:
        async with few:
            done = await _between(feed, name, old, new)
        if done is not None and done >= 0:
            found[name] = done / seconds

    async with asyncio.TaskGroup() as group:
        for lease in after.leases:
            old = known.get(lease.range)
            if old is not None and not lease.ended and seconds > 0:
                group.create_task(measure(lease.range, old.continuation, lease.continuation))
    return found


async def _between(feed: Feed, name: str, old: str | None, new: str | None) -> int | None:
    if old is None or new is None:
        return None
    if old == new:
        return 0
    range_id = RangeId(name)
    try:
        # What comes in between the two calls makes the difference smaller, never larger.
        behind = await feed.lag(range_id, Continuation(old))
        return behind - await feed.lag(range_id, Continuation(new))
    except FeedError:
        return None
