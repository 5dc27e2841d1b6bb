"""What one range needs of its host: seconds of work in each second, smoothed.

Work is the time in which the observer is called, and that of reads that bring changes. A read
that brings next to nothing may have waited for news. Calls that wait for another system take
their time whether they meet or not. Calls that wait for each other, for one processor or one
lock, take longer the more of them meet: each of n is charged an n-th, since waiting is no work.
The host learns from its calls how far they do; else ranges that are alike would differ by how
their calls happen to meet.

A range that falls behind needs more than it gets. So its work counts as often as changes came
for each change that was done. The feed's lags show how many came. A range that catches up needs
all that it gets.

Limits: a call that waits long for a lock of the observer looks as busy as the call that holds
it. Until a host has seen calls that meet more and less often, it takes none to wait for
another. On a feed that counts no lags, a range needs what it gets.
"""

from collections.abc import Callable
from math import exp, log

from changefeed.leases.lease import LOAD_STEP, MAX_LOAD, Lease

_SMOOTHED_OVER = 30.0
_MIN_SPAN = 1.0  # what is measured over less says little
_A_FEW = 1 / 10  # of a page
_LEAVES = 0.8  # of a step: a load between two steps stays where it was
_POINT = 5.0  # seconds: calls that end in it are one point of what a host learns
_DOUBTED, _LEARNED = 0.05, 20.0  # squares: what points outweigh at first, and at last


class SharedTime:
    """Seconds of ``clock``, shared by the calls that a host has under way.

    While n calls are under way it goes on by an n-th of a second in each second. The clock is
    that of the event loop: no call works while the machine is suspended.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._calls = 0
        self._shared = 0.0
        self.at = clock()
        self._point_at = self.at
        self._took = self._share = self._usual = self._crowd = self._slope = 0.0
        self._squares = _DOUBTED
        self.contention = 0.0
        """How far calls wait for each other: 0 for nothing, 1 as if for one processor."""

    def now(self, more: int = 0) -> float:
        """Return the time. So many calls more share what comes after it."""
        now = self.clock()
        self._shared += (now - self.at) / max(1, self._calls)
        self.at = now
        self._calls += more
        assert self._calls >= 0, "more calls have returned than were made"
        return self._shared

    def learn(self, took: float, share: float, usual: float) -> None:
        """Learn from calls that took so long, had that share of the time, and as a rule would
        have taken ``usual``: the slope, in logarithms, of how much longer they take where
        more of them meet.
        """
        self._took += took
        self._share += share
        self._usual += usual
        span = self.at - self._point_at
        if span < _POINT:
            return
        crowd, longer = log(self._took / self._share), log(self._took / self._usual)
        more = crowd - (self._crowd or crowd)
        self._crowd = _smoothed(crowd - more, crowd, span)
        self._squares = min(self._squares + more * more, _LEARNED)
        self._slope += more * (longer - self._slope * more) / self._squares
        self.contention = min(max(self._slope, 0.0), 1.0)
        self._point_at, self._took, self._share, self._usual = self.at, 0.0, 0.0, 0.0


class LoadMeter:
    """Measures from when ``lease`` was acquired. ``shared`` is one for all ranges of the host.

    ``cooldown`` is how long a lease that was moved is not to be moved again.
    """

    def __init__(self, lease: Lease, *, cooldown: float, shared: SharedTime) -> None:
        self._clock = shared.clock
        self._shared = shared
        self._since = self._counted_at = self._clock()
        self._counted_to = shared.now()
        self._cooling_until = self._since + cooldown if lease.cooling else 0.0
        self._load = lease.known_load
        self._calls = 0
        self._busy = 0.0
        self._took, self._share, self._done = 0.0, 0.0, 0  # since no call was under way
        self._cost, self._cost_at = 0.0, self._since  # of a change, as a rule
        self._arrivals = _Arrivals(shared.clock)
        self.is_behind = self._arrivals.is_behind

    def count(self, more: int = 0, *, done: int = 0) -> None:
        """Count the time of calls of the observer up to now. So many more are under way, or
        fewer; so many changes are done.
        """
        now, at = self._shared.now(more), self._shared.at
        assert now >= self._counted_to, f"counted to {self._counted_to}, and it is {now}"
        if self._calls:
            took, share = at - self._counted_at, self._calls * (now - self._counted_to)
            contention = self._shared.contention
            self._busy += share**contention * took ** (1 - contention)
            self._took += took
            self._share += share
        self._counted_at, self._counted_to = at, now
        self._calls += more
        self._done += done
        self._arrivals.done += done
        if not self._calls and self._done and self._share:
            cost = self._took / self._done
            usual = self._cost or cost
            self._shared.learn(self._took, self._share, usual * self._done)
            self._cost, self._cost_at = _smoothed(usual, cost, at - self._cost_at), at
            self._took, self._share, self._done = 0.0, 0.0, 0

    def has_read(self, seconds: float, *, changes: int, limit: int) -> None:
        """Count a read that took so long, for a page of ``limit`` changes at most."""
        if changes >= _A_FEW * limit:
            self._busy += seconds

    def written_to(self, lease: Lease) -> Lease:
        """Let the lease, as last written, say what its range needs by now."""
        self.count()
        span = self._clock() - self._since
        if span >= _MIN_SPAN:
            busy = self._busy / span
            self._load = _smoothed(busy if self._load is None else self._load, busy, span)
            self._since, self._busy = self._since + span, 0.0
        load = lease.known_load
        if self._load is not None:
            load = coarse(self._load * self._arrivals.for_each_done, load)
        return lease.with_load(load, cooling=self._clock() < self._cooling_until)


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
        """Take note of how many changes the range is behind at this moment."""
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
