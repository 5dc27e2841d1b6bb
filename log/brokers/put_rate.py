"""How many objects a broker writes in a second, where each costs a request."""

import asyncio
from math import inf
from typing import Final

_SAVED_UP: Final = 20
"""So many objects may be written at once after a rest."""


class PutRate:
    """``puts`` objects in a second, and some saved up. Times are those of the event loop, in
    seconds.
    """

    def __init__(self, puts: float) -> None:
        assert puts > 0, f"a rate of {puts} objects writes nothing"
        self._puts = puts
        self._paid_until = -inf

    @property
    def due(self) -> float:
        """When there may be another object."""
        return self._paid_until - (_SAVED_UP - 1) / self._puts

    def pay(self) -> None:
        """Count an object. One that was not due keeps none after it waiting for longer."""
        now = asyncio.get_running_loop().time()
        paid_until = max(self._paid_until, now) + 1 / self._puts
        self._paid_until = min(paid_until, now + _SAVED_UP / self._puts)
