"""When an observer that failed is called again: later and later."""

from random import Random

from pydantic import Field

from changefeed.runtime.settings import Seconds, Section

FIRST_DELAY = 0.5
"""In seconds; each one that follows is twice as long."""
JITTER = 0.5
"""The part of a delay that chance may take away."""
_PART_OF_AN_OUTAGE = 16
"""The next try in an outage comes when it is longer by so small a part."""


class RetrySettings(Section):
    """How often and how late a change that failed is tried again: after half a second,
    and each time after twice as long, up to ``max_delay`` seconds. Chance takes away up to half
    of each delay. ``attempts`` is how many failures count against a change before it is put
    aside, and how many in a row before the observer is opened anew; ``None`` means that neither
    ever happens.
    """

    max_delay: Seconds = 60.0
    attempts: int | None = Field(default=10, ge=1)


class GrowingDelays:
    """The delays that some settings ask for."""

    def __init__(self, settings: RetrySettings, random: Random) -> None:
        self._longest = settings.max_delay
        self._random = random

    def after(self, tries: int) -> float:
        """Return how long to wait after the last of so many tries."""
        doublings = min(tries - 1, 64)  # more of them make no difference
        return self._by_chance(min(FIRST_DELAY * 2.0**doublings, self._longest))

    def of_outage(self, age: float) -> float:
        """Return how long to wait in an outage of that age: its end is to be found soon, and
        what is away for hours is not asked all the time.
        """
        return self._by_chance(min(max(FIRST_DELAY, age / _PART_OF_AN_OUTAGE), self._longest))

    def _by_chance(self, seconds: float) -> float:
        return seconds * (1 - JITTER * self._random.random())
