"""How long to wait before the next try: each time twice as long, up to a limit, and less by
chance, so that what failed together does not come again together.
"""

from dataclasses import dataclass
from random import Random

JITTER = 0.5
"""The part of a delay that chance may take away."""
_PART_OF_AN_OUTAGE = 16
"""The next try in an outage comes when it is longer by so small a part."""


@dataclass(frozen=True, slots=True)
class GrowingDelays:
    """Delays in seconds: the ``first``, and none beyond the ``longest``."""

    first: float
    longest: float
    random: Random

    def after(self, tries: int) -> float:
        """Return how long to wait after the last of so many tries."""
        doublings = min(tries - 1, 64)  # more of them make no difference
        return self._by_chance(min(self.first * 2.0**doublings, self.longest))

    def of_outage(self, age: float) -> float:
        """Return how long to wait in an outage of that age: its end is to be found soon, and
        what is away for hours is not asked all the time.
        """
        return self._by_chance(min(max(self.first, age / _PART_OF_AN_OUTAGE), self.longest))

    def _by_chance(self, seconds: float) -> float:
        return seconds * (1 - JITTER * self.random.random())
