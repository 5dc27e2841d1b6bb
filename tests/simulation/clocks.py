"""The wall clocks of processes: none is right, and some jump, run too fast or stand still."""

from dataclasses import dataclass

_BEGINNING = 1_700_000_000.0  # when the world begins, on a clock that is right


def right_time(now: float) -> float:
    """Return the wall-clock time at ``now``, in seconds of virtual time."""
    return _BEGINNING + now


@dataclass(slots=True, kw_only=True)
class Clock:
    """``error`` seconds ahead at ``since``, in virtual time; it runs at ``rate`` from then."""

    error: float
    since: float = 0.0
    rate: float = 1.0

    def at(self, now: float) -> float:
        return right_time(self.since) + self.error + (now - self.since) * self.rate

    def jump(self, now: float, error: float, rate: float) -> None:
        self.error, self.since, self.rate = error, now, rate
