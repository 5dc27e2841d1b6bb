"""The ranges of a feed that have no lease: those that were, and those that are to come."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed, FeedRange
from changefeed.host.page.view import PastRange, RangeRow, without_lease

_EVERY = 30.0
_MOST = 2000
"""The newest so many are shown of those that were."""


class Lineage:
    """The ranges of a feed, asked for each half a minute at most."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._ranges: Sequence[FeedRange] = ()

    async def ranges(self, feed: Feed) -> Sequence[FeedRange]:
        """Return the last ones known where the feed does not answer."""
        now = asyncio.get_running_loop().time()
        if now - self._asked_at >= _EVERY:
            self._asked_at = now
            with suppress(FeedError):
                self._ranges = await feed.ranges()
        return self._ranges


def unleased(
    ranges: Sequence[FeedRange], leases: Collection[FeedRange]
) -> tuple[list[PastRange], list[RangeRow]]:
    """Part what has no lease into ancestors and what is to be read. Parents come first.

    What others hold keys of waits for them: a range that was merged is read in parts first.
    """
    leased = {x.id for x in leases}
    ancestors: set[str] = set()
    for found in reversed(ranges):
        if found.id in leased or found.id in ancestors:
            ancestors.update(found.parents)
    waiting: set[str] = set()
    past, rows = [], []
    for found in ranges:
        if found.id in leased:
            continue
        if found.id in ancestors:
            past.append(
                PastRange(name=found.id, parents=found.parents, low=found.low, high=found.high)
            )
            continue
        after = any(x in leased or x in waiting for x in found.parents)
        waits = after or any(x.shares_keys_with(found) for x in leases)
        if waits:
            waiting.add(found.id)
        rows.append(without_lease(found, waits=waits))
    return past[-_MOST:], rows
