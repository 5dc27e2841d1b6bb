"""When hosts do what: all of it follows from one number, after which a silent host is dead.

So the parts fit together for any expiration: two renewals and a call without an answer lie
before the fence, and one lost listing moves nothing. Nobody sets them one by one.
"""

from dataclasses import dataclass
from typing import Final, Self

from changefeed.leases.lease import FleetRecord
from changefeed.runtime.clock import Clock

_CLOCK_SKEW: Final = 300.0
_HANDOFF_POLL: Final = 0.5
_MAX_BETWEEN_RANGES: Final = 30.0
_MAX_BETWEEN_LAGS: Final = 10.0
_MAX_UNSEEN: Final = 60.0
"""Hosts read the record every half a minute; one answer may be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Intervals and limits, in seconds. ``of`` derives them; a test may replace one."""

    expiration: float
    """A host that shows no sign of life for this long loses its leases."""
    renew_interval: float
    """How often a host shows that it lives: by its heartbeat, or by renewals of leases."""
    balance_interval: float
    """How often to list leases and members and to act on the plan."""
    call_timeout: float
    """How long to wait for one answer of the store."""
    fence_margin: float
    """How long before the expiration a host stops acting on a lease it cannot renew."""
    rebalance_delay: float
    """How long membership must have been quiet before leases are stolen."""
    cooldown: float
    """How long a lease that was moved by its load, or made by a split, stays as it is."""
    handoff_poll: float
    """How often to list the leases while one of them is about to change hands."""
    clock_skew: float
    """No two clocks of the fleet are further apart: what is older by its stamp is dead once it
    has stood still for two renewals."""
    ranges_interval: float
    """How often to look for ranges that are new."""
    lag_interval: float
    """How often to measure the lag of each range."""

    def __post_init__(self) -> None:
        assert 0 < self.fence_margin < self.expiration, f"the fence lies before the end: {self}"
        # One without an answer is followed by the next within half an interval.
        second = self.renew_interval * 1.5 + self.call_timeout
        assert second < self.held_for, f"one loses a lease: {self}"

    @property
    def held_for(self) -> float:
        """How long after a sign of life its host may act on a lease."""
        return self.expiration - self.fence_margin

    @classmethod
    def of(cls, expiration: float) -> Self:
        return cls(
            expiration=expiration,
            renew_interval=expiration / 3,
            balance_interval=expiration / 6,
            call_timeout=expiration / 3,
            fence_margin=expiration / 30,
            rebalance_delay=expiration / 6,
            cooldown=expiration * 2,
            handoff_poll=min(_HANDOFF_POLL, expiration / 6),
            clock_skew=_CLOCK_SKEW,
            ranges_interval=min(_MAX_BETWEEN_RANGES, expiration),
            lag_interval=min(_MAX_BETWEEN_LAGS, expiration / 3),
        )


class FleetRules:
    """What one host goes by, on its clock: its own settings, until it adopts the record's.

    The expiration, and what hosts share, stand in the record of the fleet, so that a rolling
    deployment changes them without a stop. Until the old expiration has passed once, some hosts
    may not have seen the new one. So a host shows that it lives by the shorter of the two, and
    takes others for dead by the longer: neither those that have adopted it nor the others lose
    leases. What has passed is dropped when the record is read the next time.
    """

    def __init__(self, own: Timing, balance: str, clock: Clock) -> None:
        self.balance = balance
        self._own = own
        self._clock = clock
        self._now = own
        self._earlier: list[tuple[Timing, float]] = []
        self.shown = own
        """How often, and for how long, this host shows that it lives."""
        self.judged = own
        """By what this host takes others for dead."""

    @property
    def settled(self) -> bool:
        """Whether no host goes by an earlier expiration any more."""
        return not self._earlier

    def begin(self, record: FleetRecord) -> None:
        """Go by a record from the start, in which other hosts may still see what was before."""
        self.balance = record.balance
        self._now = self._of(record.expiration)
        if record.before:
            self._leave(self._of(record.before))
        self._settle()

    def adopt(self, record: FleetRecord) -> bool:
        """Go by a record from now on; return whether that is another rule than before."""
        changed = (record.expiration, record.balance) != (self._now.expiration, self.balance)
        if record.expiration != self._now.expiration:
            self._leave(self._now)
            self._now = self._of(record.expiration)
        self.balance = record.balance
        self._settle()
        return changed

    def _leave(self, timing: Timing) -> None:
        until = self._clock() + max(timing.expiration, _MAX_UNSEEN)
        self._earlier.append((timing, until))

    def _settle(self) -> None:
        now = self._clock()
        self._earlier = [x for x in self._earlier if now < x[1]]
        valid = [self._now, *(x for x, _ in self._earlier)]
        self.shown = min(valid, key=lambda x: x.expiration)
        self.judged = max(valid, key=lambda x: x.expiration)

    def _of(self, expiration: float) -> Timing:
        return self._own if expiration == self._own.expiration else Timing.of(expiration)
