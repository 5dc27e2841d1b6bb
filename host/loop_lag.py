"""How late the event loop is: user code that blocks it would delay renewals."""

import asyncio
from typing import Never

from changefeed.host.events import HostEvents

_INTERVAL = 0.5


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
            self._events.loop_lag(lag)
            if self.endangers_renewal:
                self._events.loop_blocked(lag, self._limit)
