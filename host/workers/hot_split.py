"""The owner of a range splits it, at a checkpoint, because it is too much for one host.

Each listing asks for it, or takes that back; the delivery looks between two pages. Nothing is
stopped for it: what waits for acknowledgement is waited for as ever. The range ends there as
one that the feed has ended, in the last write of its owner, and goes on in sub-ranges.

Limits: a range whose observer leaves something unacknowledged at the end of each page is not
split.
"""

import asyncio

from changefeed.feeds.errors import FeedRefused
from changefeed.host.workers.checkpointer import Checkpointer
from changefeed.host.workers.owned_lease import OwnedLease
from changefeed.host.workers.shared import Shared
from changefeed.leases.lease import End


class HotSplit:
    """The split of one range, if there is to be one. Times are in seconds, on the loop's clock.

    A range is not split before its owner has read it for a cooldown (who has just come has much
    to catch up with), nor for as long after a split that the feed has refused.
    """

    def __init__(self, owned: OwnedLease, shared: Shared, checkpoints: Checkpointer) -> None:
        self._owned = owned
        self._shared = shared
        self._checkpoints = checkpoints
        self._clock = asyncio.get_running_loop().time
        self._cooldown = shared.settings.leases.timing.cooldown
        self._not_before = self._clock() + self._cooldown
        self.into: int | None = None
        """How many sub-ranges are asked for."""

    @property
    def due(self) -> bool:
        return self.into is not None and self._clock() >= self._not_before

    async def end_here(self) -> End | None:
        """Checkpoint what was done, which must be all that was delivered; return what the range
        goes on in, ``None`` where it cannot be split.
        """
        into = self.into  # a listing may take it back meanwhile
        if into is None:
            return None
        self._checkpoints.advance()
        await self._checkpoints.written()
        assert self._checkpoints.at_rest, (
            f"parts of range {self._owned.range_id!r} would begin behind what was done"
        )
        lease = self._owned.lease
        try:
            end = End.of_split(self._shared.feed, lease.range, into, self._owned.continuation)
        except FeedRefused as error:
            self._not_before = self._clock() + self._cooldown
            self._shared.events.retrying("split range", error, self._cooldown)
            return None
        self._shared.events.ended(lease.range_id, end)
        return end
