"""How late the event loop is: user code that blocks it would delay renewals."""

import asyncio
from typing import Never

from changefeed.host.events import Journal

_INTERVAL = 0.5


class LoopLag:
    """Measures by sleeping and seeing how late it wakes. ``limit`` is in seconds."""

    def __init__(self, journal: Journal, *, limit: float) -> None:
        self._journal = journal
        self._limit = limit
        self.endangers_renewal = False
        """Whether the last measurement was over the limit."""

    async def measure_for_ever(self) -> Never:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + _INTERVAL
            await asyncio.sleep(_INTERVAL)
            lag = max(0.0, clock() - due)
            self.endangers_renewal = lag > self._limit
            self._journal.loop_lag(lag)
            if self.endangers_renewal:
                self._journal.loop_blocked(lag, self._limit)
