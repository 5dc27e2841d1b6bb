"""Whether a host is ready to do its part in the fleet, and how late its event loop is."""

import asyncio
from dataclasses import dataclass
from typing import Never

from changefeed.host.events import HostEvents

_INTERVAL = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the readiness of a host is made of. Ages are in seconds."""

    joined: bool
    stopping: bool
    loop_blocked: bool
    last_listing: float | None

    def problems(self, *, longest_without_listing: float) -> list[str]:
        """Say what keeps the host from being ready, for people."""
        found = []
        if not self.joined:
            found.append("it has not joined the fleet yet")
        if self.stopping:
            found.append("it is stopping")
        if self.loop_blocked:
            found.append("the event loop is late: user code blocks it, or CPU is short")
        if self.joined and (
            self.last_listing is None or self.last_listing > longest_without_listing
        ):
            found.append("the lease container does not answer")
        return found


class LoopLag:
    """Measures by sleeping and seeing how late it wakes. ``limit`` is in seconds."""

    def __init__(self, events: HostEvents, *, limit: float) -> None:
        self._events = events
        self._limit = limit
        self.endangers_renewal = False
        """Whether the last measurement was over the limit."""

    async def run(self) -> Never:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + _INTERVAL
            await asyncio.sleep(_INTERVAL)
            lag = max(0.0, clock() - due)
            self.endangers_renewal = lag > self._limit
            self._events.activity.loop_lag = lag
            if self.endangers_renewal:
                self._events.loop_blocked(lag, self._limit)
