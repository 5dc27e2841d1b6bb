"""The status of a fleet at one moment: what the page, ``changefeed status``, ``/leases``,
``/metrics``, the scaler and the doctor show, each in its way.

=========  =============================================================================
a range    what it says
=========  =============================================================================
reading    its owner reads it, and has something to do
idle       its owner reads it, and there is nothing to do
failing    its observer fails on it, again and again or for the first time
stuck      a call of its observer does not come back, or it does not acknowledge
paused     no host reads it until it is resumed
waiting    others have its keys: no host may own its lease
unowned    it could be read, and no host has its lease, or there is no lease yet
expired    it has an owner that gives no sign of life, and no host has taken it over
ended      it has been read to its end
=========  =============================================================================

A host is running, stopping, dead (it gives no sign of life), or foreign (it owns leases and
keeps no record). What decides it is ``changefeed.fleet.states``, alone.

Times are seconds since 1970, by the clocks of those who wrote them; ages are in seconds. What
is not known is ``None``.
"""

from collections.abc import Collection, Sequence
from math import ceil
from typing import Literal, Self

import msgspec

from changefeed.leases.health import WaitingKey

RangeState = Literal[
    "reading",
    "idle",
    "failing",
    "stuck",
    "paused",
    "waiting",
    "unowned",
    "expired",
    "ended",
]
HostState = Literal["running", "stopping", "dead", "foreign"]
BAD: Sequence[RangeState] = ("stuck", "failing", "expired", "unowned", "paused")
"""The states that a person should look at, the worst first."""

DEFAULT_LAG_PER_HOST = 10_000


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured of a range.

    ``position`` is its checkpoint. ``lag`` counts what a range goes on in without a lease,
    too, and of one that has ended nothing; ``lag_seconds`` is the age of the first change that
    is not checkpointed, 0 if there is none. ``rate`` is changes a second.
    """

    position: str | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    rate: float | None = None
    checkpoint_at: float | None = None
    owned_since: float | None = None


class RangeStatus(Metrics, frozen=True, kw_only=True):
    """A range, by its lease and by what its owner says.

    ``since`` is since when it is in its state, and ``note`` why, where that is known. ``load``
    is what it costs its owner: busy seconds in each second. ``low`` and ``high`` bound its
    keys: see ``FeedRange``. ``waiting`` is how many keys wait for another try, ``oldest`` the
    one that waits the longest. ``leased`` is false where there is no lease, yet or any more.
    """

    range: str
    state: RangeState
    since: float | None = None
    note: str | None = None
    owner: str | None = None
    next_owner: str | None = None
    epoch: int = 0
    parents: Sequence[str] = ()
    low: str = ""
    high: str = ""
    load: float | None = None
    progress_at: float | None = None
    waiting: int = 0
    oldest: WaitingKey | None = None
    leased: bool = True


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Some ranges together. ``lag`` is ``None`` unless that of each is known; ``lag_at_least``
    is the sum of those that are. ``lag_seconds`` is that of the latest.
    """

    ranges: int = 0
    lag: int | None = None
    lag_at_least: int | None = None
    lag_seconds: float | None = None
    rate: float | None = None
    load: float | None = None


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A host, by its record and by what it says of itself.

    ``stamp_age`` is the age of its record by its stamp, ``still`` for how long the record has
    not moved, as seen from here. ``total`` is of the ranges that it owns.
    """

    name: str
    state: HostState
    total: Totals
    address: str = ""
    version: str = ""
    incarnation: str = ""
    heartbeats: int = 0
    stamp_age: float | None = None
    still: float = 0.0
    started_at: float | None = None
    loop_lag: float | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What the state of no range says: the feed, or a range of it, cannot be read. A person
    has to change something where it is ``refused``.
    """

    kind: Literal["refused", "unavailable"]
    message: str
    range: str | None = None


MoveKind = Literal[
    "created", "acquired", "moved", "released", "requested", "paused", "resumed", "ended"
]


class LeaseMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a lease between two looks. ``of`` is the host that had it before,
    ``to`` the one that has it now, or asks for it; ``note`` why it was paused.
    """

    at: float
    range: str
    kind: MoveKind
    of: str | None = None
    to: str | None = None
    note: str | None = None


class TrendPoint(msgspec.Struct, frozen=True, array_like=True):
    """One moment of the last hour."""

    at: float
    rate: float
    lag: int
    lag_seconds: float | None = None


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet at one moment. ``clock`` is when, by a clock of this process that never goes
    back. ``past`` are ranges that have ended and have no lease any more. ``moves`` are the
    newest first; ``moved`` counts all of them. ``hour`` is of the host that looks, if one does,
    or else of the fleet. ``balance`` is what hosts share, as their settings call it.
    """

    at: float
    clock: float
    feed: str
    leases: str
    expiration: float
    hosts: Sequence[HostStatus]
    ranges: Sequence[RangeStatus]
    past: Sequence[RangeStatus] = ()
    problems: Sequence[Problem] = ()
    moves: Sequence[LeaseMove] = ()
    moved: int = 0
    hour: Sequence[TrendPoint] = ()
    balance: str = ""

    @property
    def total(self) -> Totals:
        """All ranges that have not ended."""
        return totals([x for x in self.ranges if x.state != "ended"])


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of itself, at ``/leases``: its ranges, and all that are paused."""

    host: str
    incarnation: str = ""
    version: str = ""
    started_at: float | None = None
    loop_lag: float | None = None
    ranges: Sequence[RangeStatus] = ()


def desired_hosts(
    fleets: Collection[FleetStatus], lag_per_host: int = DEFAULT_LAG_PER_HOST
) -> int:
    """Return how many hosts there should be: the lag divided by ``lag_per_host``, rounded
    up, and no more than can be used. Each host is one of all ``fleets``, of which it reads some
    ranges.

    Only ranges count that hosts may read: not paused, and not ended. More hosts than such
    ranges would stand by. A range that has no lease yet, or whose lag is not known, may have
    changes: then there is at least one host. Without any lag it is 0.
    """
    of_use = [[x for x in fleet.ranges if _is_of_use(x)] for fleet in fleets]
    lags = [x.lag for ranges in of_use for x in ranges]
    wanted = ceil(sum(x or 0 for x in lags) / lag_per_host)
    return min(max(wanted, int(None in lags)), max(map(len, of_use)))


def totals(ranges: Collection[RangeStatus]) -> Totals:
    """Add up what is known."""
    lags = [x.lag for x in ranges if x.lag is not None]
    rates = [x.rate for x in ranges if x.rate is not None]
    loads = [x.load for x in ranges if x.load is not None]
    late = [x.lag_seconds for x in ranges if x.lag_seconds is not None]
    return Totals(
        ranges=len(ranges),
        lag=sum(lags) if lags and len(lags) == len(ranges) else None,
        lag_at_least=sum(lags) if lags else None,
        lag_seconds=max(late, default=None),
        rate=round(sum(rates), 1) if rates else None,
        load=round(sum(loads), 2) if loads else None,
    )


def _is_of_use(seen: RangeStatus) -> bool:
    """Whether one more host may find something to read in it."""
    return seen.state not in ("paused", "ended") and (seen.leased or seen.state == "unowned")


class FleetDocument(FleetStatus, frozen=True, kw_only=True):
    """A status for programs, with how many hosts there should be."""

    desired_hosts: int

    @classmethod
    def of(cls, seen: FleetStatus) -> Self:
        return cls(**msgspec.structs.asdict(seen), desired_hosts=desired_hosts([seen]))
