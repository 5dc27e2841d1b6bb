"""A fleet of which no host runs, as those see it who scale it."""

from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.watch import StatusWatch
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import StoreUnavailable
from tests.support import make


class RestingFleet:
    """It has leases of three ranges at their beginning; if ``away``, they do not answer."""

    def __init__(self, *, away: bool = False) -> None:
        self._away = away
        self._feed = MemoryFeed(3)
        self._now = 0.0

    async def watch(self) -> StatusWatch:
        leases = _Away() if self._away else MemoryLeases()
        if not self._away:
            for found in await self._feed.ranges():
                await leases.create(Lease(range=found, checkpoint=Checkpoint.of_text("0")))
        return StatusWatch(make.store_source(leases, self._feed).look, lambda: self._now)

    def append(self, changes: int) -> None:
        for n in range(changes):
            self._feed.append(f"key-{n}")

    def pass_time(self) -> None:
        """Wait until the last look is old."""
        self._now += 5


class _Away(MemoryLeases):
    async def list(self) -> list[Lease]:
        raise StoreUnavailable("the lease container does not answer")
