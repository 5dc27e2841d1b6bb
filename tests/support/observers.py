"""Parts of observers under test: one that has nothing to open or close, a gate, an end."""

import asyncio

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import Lease
from changefeed.observers.observer import CloseReason, Context


class Bare:
    """Opens and closes nothing; what inherits from it says how it processes."""

    async def open(self, context: Context) -> None:
        """Have nothing to open."""

    async def close(self, context: Context, reason: CloseReason) -> None:
        """Have nothing to close."""


class Gate:
    """Lets so many calls pass. It is what all observers of a range are told, as well."""

    def __init__(self, calls: float = float("inf")) -> None:
        self._left = calls
        self.range = FeedRange(id=RangeId("r1"))
        self.host = "anna"
        self.epoch = 1
        self.handing_over, self.reset_epoch = False, 0

    def check(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise LeaseLost(Lease(range=self.range), "the lease is not ours")

    async def flush(self) -> None:
        """Have nothing to wait for."""


def cancelled_by_itself() -> BaseException:
    """Cancel the task that the observer is called in, and return what comes of that."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return asyncio.CancelledError()
