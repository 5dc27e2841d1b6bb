"""How something that runs is asked to stop: once to finish in order, twice to end at once."""

import asyncio


class Stop:
    """Counts requests. Made for one event loop; ``request`` returns immediately."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        """Set by the first request: finish in order."""
        self.at_once = asyncio.Event()
        """Set by the second: cancel what has not ended."""

    def request(self) -> None:
        (self.at_once if self.requested.is_set() else self.requested).set()
