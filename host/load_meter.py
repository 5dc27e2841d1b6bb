"""What one range needs of its host: seconds of work in each second, smoothed.

Work is the time in which the observer is called, and that of reads that bring changes. While a
host has n calls under way, each is charged an n-th of the time: they may wait for one processor
or one connection, and waiting is no work. A read that brings next to nothing may have waited
for news.

A range that falls behind needs more than it gets. So its work counts as often as changes came
for each change that was done. The feed's lags show how many came. A range that catches up needs
all that it gets.

Limits: a call that waits long for a lock of the observer looks as busy as the call that holds
it. On a feed that counts no lags, a range needs what it gets.
"""

from collections.abc import Callable
from math import exp

from changefeed.leases.lease import LOAD_STEP, MAX_LOAD, Lease

_SMOOTHED_OVER = 30.0
_MIN_SPAN = 1.0  # what is measured over less says little
_A_FEW = 1 / 10  # of a page
_LEAVES = 0.8  # of a step: a load between two steps stays where it was


class SharedTime:
    """Seconds of ``clock``, shared by the calls that a host has under way.

    While n calls are under way it goes on by an n-th of a second in each second. The clock is
    that of the event loop: no call works while the machine is suspended.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._calls = 0
        self._shared = 0.0
        self._at = clock()

    def now(self, more: int = 0) -> float:
        """Return the time. So many calls more share what comes after it."""
        now = self.clock()
        self._shared += (now - self._at) / max(1, self._calls)
        self._at = now
        self._calls += more
        assert self._calls >= 0, "more calls have returned than were made"
        return self._shared


class LoadMeter:
    """Measures from when ``lease`` was acquired. ``shared`` is one for all ranges of the host.

    ``cooldown`` is how long a lease that was moved is not to be moved again.
    """

    def __init__(self, lease: Lease, *, cooldown: float, shared: SharedTime) -> None:
        self._clock = shared.clock
        self._shared = shared
        self._acquired_at = self._since = self._clock()
        self._counted_to = shared.now()
        self._cooldown = cooldown
        self._cooling = lease.cooling
        self._load = lease.known_load
        self._calls = 0
        self._busy = 0.0
        self._arrivals = _Arrivals(shared.clock)

    def count(self, more: int = 0, *, done: int = 0) -> None:
        """Count the time of calls of the observer up to now. So many more are under way, or
        fewer; so many changes are done.
        """
        now = self._shared.now(more)
        assert now >= self._counted_to, f"counted to {self._counted_to}, and it is {now}"
        self._busy += self._calls * (now - self._counted_to)
        self._counted_to = now
        self._calls += more
        self._arrivals.done += done

    def has_read(self, seconds: float, *, changes: int, limit: int) -> None:
        """Count a read that took so long, for a page of ``limit`` changes at most."""
        if changes >= _A_FEW * limit:
            self._busy += seconds

    def is_behind(self, changes: int) -> None:
        """Take note of how many changes the range is behind at this moment."""
        self._arrivals.is_behind(changes)

    def written_to(self, lease: Lease) -> Lease:
        """Let the lease, as last written, say what its range needs by now."""
        self._measure()
        load = lease.known_load
        if self._load is not None:
            load = coarse(self._load * self._arrivals.for_each_done, load)
        cooling = self._cooling and self._clock() - self._acquired_at < self._cooldown
        return lease.with_load(load, cooling=cooling)

    def _measure(self) -> None:
        self.count()
        span = self._clock() - self._since
        if span < _MIN_SPAN:
            return
        load = self._busy / span
        before = load if self._load is None else self._load
        self._load = _smoothed(before, load, span)
        self._since, self._busy = self._since + span, 0.0


class _Arrivals:
    """How many changes come for each that is done. ``done`` counts since the last lag."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._behind: int | None = None
        self.done = 0
        self._done_rate = self._arrival_rate = 0.0

    @property
    def for_each_done(self) -> float:
        """At least one: to catch up is work, too."""
        return max(1.0, self._arrival_rate / self._done_rate) if self._done_rate else 1.0

    def is_behind(self, changes: int) -> None:
        span = self._clock() - self._since
        if self._behind is not None:
            if span < _MIN_SPAN:
                return
            arrived = max(0, self.done + changes - self._behind)
            self._done_rate = _smoothed(self._done_rate, self.done / span, span)
            self._arrival_rate = _smoothed(self._arrival_rate, arrived / span, span)
        self._since, self._behind, self.done = self._since + span, changes, 0


def _smoothed(before: float, measured: float, span: float) -> float:
    return before + (1 - exp(-span / _SMOOTHED_OVER)) * (measured - before)


def coarse(load: float, stored: float | None) -> float:
    """Return the step to store for a measured load, which is ``stored`` while that is near."""
    if stored is not None and abs(load - stored) < _LEAVES * LOAD_STEP:
        return stored
    step = round(round(min(max(load, 0.0), MAX_LOAD) / LOAD_STEP) * LOAD_STEP, 2)
    assert 0.0 <= step <= MAX_LOAD, f"a load of {load} is stored as {step}"
    return step
