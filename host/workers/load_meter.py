"""How busy one range keeps its owner: busy seconds in each second, smoothed.

Counted are the calls of the observer, as long as they take, and the reads that brought
changes. A read that brings next to nothing may have waited for news, which is no work.

Limits: it is the time that passes. On a host whose processor is the bottleneck all ranges look
busier than they would elsewhere, and an observer that waits for another system looks busy.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import exp

from changefeed.leases.lease import Lease
from changefeed.leases.load import coarse, known

_SMOOTHED_OVER = 30.0
_SHORTEST_SPAN = 1.0  # what is measured over less says little
_A_FEW = 1 / 10  # of a page


class LoadMeter:
    """Measures from when ``lease`` was acquired. Times are in seconds of ``clock``.

    ``cooldown`` is how long a lease that was moved is not to be moved again.
    """

    def __init__(self, lease: Lease, *, cooldown: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._acquired_at = self._since = self._counted_to = clock()
        self._cooldown = cooldown
        self._moved = lease.moved
        self._load = known(lease.load)
        self._calls = 0
        self._busy = 0.0

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Count the time of a call of the observer, while it runs as well."""
        self._count()
        self._calls += 1
        try:
            yield
        finally:
            self._count()
            self._calls -= 1
            assert self._calls >= 0, "more calls have returned than were made"

    def has_read(self, seconds: float, *, changes: int, limit: int) -> None:
        """Count a read that took so long, for a page of ``limit`` changes at most."""
        if changes >= _A_FEW * limit:
            self._busy += seconds

    def written_to(self, lease: Lease) -> Lease:
        """Let the lease, as last written, say what its range costs by now."""
        self._measure()
        load = known(lease.load)
        if self._load is not None:
            load = coarse(self._load, load)
        moved = self._moved and self._clock() - self._acquired_at < self._cooldown
        return lease.with_load(load, moved=moved)

    def _measure(self) -> None:
        self._count()
        span = self._counted_to - self._since
        if span < _SHORTEST_SPAN:
            return
        load = self._busy / span
        before = load if self._load is None else self._load
        self._load = before + (1 - exp(-span / _SMOOTHED_OVER)) * (load - before)
        self._since, self._busy = self._counted_to, 0.0

    def _count(self) -> None:
        now = self._clock()
        assert now >= self._counted_to, f"counted to {self._counted_to}, and it is {now}"
        self._busy += self._calls * (now - self._counted_to)
        self._counted_to = now
