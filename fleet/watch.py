"""One look at a fleet for all who ask, whatever it takes.

A look may read every lease, and the lag of each: with thousands of ranges over a slow store
that takes longer than Prometheus and KEDA wait. So it goes on when the one who asked for it is
gone, and those who cannot wait get the one before.
"""

import asyncio
from collections.abc import Awaitable, Callable

from changefeed.fleet.status import FleetStatus
from changefeed.runtime.errors import StoreUnavailable

_CACHE_SECONDS = 5.0
_MAX_SECONDS = 120.0
_MAX_AGE = 600.0

Look = Callable[[FleetStatus | None], Awaitable[FleetStatus]]
"""Makes a status; what it is given is the one before, if there is one."""


class StatusWatch:
    """One look at a time, and none while the last is fresh. ``clock`` never goes back."""

    def __init__(
        self,
        look: Look,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self._look = look
        self._clock = clock
        self._looking: asyncio.Task[FleetStatus] | None = None
        self._last: FleetStatus | None = None
        self._looked_at = float("-inf")

    @property
    def age(self) -> float:
        """How old the last look is, in seconds."""
        return self._clock() - self._looked_at

    async def look(
        self, *, max_age: float = _CACHE_SECONDS, within: float = _MAX_SECONDS
    ) -> FleetStatus:
        """Return a look that is younger than ``max_age``, or after ``within`` seconds the one
        before. Both are in seconds.

        Raise what a look raises, and ``StoreUnavailable`` where there is no look yet, or
        none of the last ten minutes.
        """
        if self._last is None or self.age >= max_age:
            await self._wait_for_another(within)
        assert self._last is not None, "there is one, or it was raised why not"
        return self._last

    async def stop(self) -> None:
        """Give up the look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _wait_for_another(self, within: float) -> None:
        looking = self._looking
        if looking is None or looking.done():
            looking = self._looking = asyncio.create_task(self._look_once())
            looking.add_done_callback(_retrieve)
        await asyncio.wait({looking}, timeout=within)
        if looking.done():
            looking.result()
        elif self._last is None or self.age >= _MAX_AGE:
            raise StoreUnavailable(
                f"a look at the fleet takes longer than {within:g} s; it goes on: ask again"
            )

    async def _look_once(self) -> FleetStatus:
        try:
            async with asyncio.timeout(_MAX_SECONDS):
                seen = await self._look(self._last)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"a look at the fleet took longer than {_MAX_SECONDS:g} s"
            ) from error
        self._last, self._looked_at = seen, self._clock()
        return seen


def _retrieve(looking: "asyncio.Task[FleetStatus]") -> None:
    """Take its error, which those who wait for it raise, if any still does."""
    if not looking.cancelled():
        looking.exception()
