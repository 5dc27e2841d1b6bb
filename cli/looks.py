"""Looks at a fleet for all who ask, whatever a look takes.

A look reads every lease, and the lag of each: with thousands of ranges over a slow store that
takes longer than Prometheus and KEDA wait. So it goes on when the one who asked for it is
gone, and those who cannot wait get the one before.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from changefeed.host.snapshot import FleetInspector, Snapshot
from changefeed.runtime.errors import StoreUnavailable

_FRESH = 5.0
_LONGEST_LOOK = 120.0
_OLDEST = 600.0


class Look(NamedTuple):
    """What was seen, so many seconds ago."""

    seen: Snapshot
    age: float


class Looks:
    """One look at a time, and none while the last is fresh. ``clock`` never goes back."""

    def __init__(self, fleet: FleetInspector, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._looking: asyncio.Task[Snapshot] | None = None
        self._last: tuple[float, Snapshot] | None = None

    async def look(self, *, within: float) -> Look:
        """Return a fresh look, or after ``within`` seconds the one before.

        Raise ``StoreError`` if the container does not answer, and where there is no look
        yet, or none of the last ten minutes.
        """
        if self._last is None or self._age >= _FRESH:
            await self._wait_for_another(within)
        assert self._last is not None, "there is one, or it was raised why not"
        return Look(self._last[1], self._age)

    async def stop(self) -> None:
        """Give up the look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _wait_for_another(self, within: float) -> None:
        looking = self._looking
        if looking is None or looking.done():
            looking = self._looking = asyncio.create_task(self._look())
            looking.add_done_callback(_retrieve)
        await asyncio.wait({looking}, timeout=within)
        if looking.done():
            looking.result()
        elif self._last is None or self._age >= _OLDEST:
            raise StoreUnavailable(
                f"a look at the fleet takes longer than {within:g} s; it goes on: ask again"
            )

    async def _look(self) -> Snapshot:
        try:
            async with asyncio.timeout(_LONGEST_LOOK):
                seen = await self._fleet.look()
        except TimeoutError as error:
            raise StoreUnavailable(
                f"a look at the fleet took longer than {_LONGEST_LOOK:g} s"
            ) from error
        self._last = self._clock(), seen
        return seen

    @property
    def _age(self) -> float:
        assert self._last is not None, "somebody has looked"
        return self._clock() - self._last[0]


def _retrieve(looking: "asyncio.Task[Snapshot]") -> None:
    """Take its error, which those who wait for it raise, if any still does."""
    if not looking.cancelled():
        looking.exception()
