"""How things stand in a fleet: the one place that decides the states of ranges and hosts.

A source lists (``changefeed.fleet.sources``, or a host what it has listed anyway), hosts report
what only they know, and ``fleet_status`` makes a status of it. It is pure.

Who lives it does not decide: that is what a ``Fleet`` says (``changefeed.leases.fleet``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from changefeed.feeds.errors import FeedError, FeedUnavailable, RangeRefused
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.fleet.changes import hour_with, moves_between
from changefeed.fleet.status import (
    FleetStatus,
    HostStatus,
    Metrics,
    Problem,
    RangeState,
    RangeStatus,
    Report,
    totals,
)
from changefeed.leases.fleet import Fleet, is_placeholder
from changefeed.leases.health import RangeHealth
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease

_MOVES = 100
_PAST = 2000


_NOTHING = Metrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetListing:
    """What one look at a fleet has listed. ``fleet`` says who lives; ``keymap`` is of all
    leases, and of the ranges that the feed lists; ``leases`` are those to show, each once.
    ``me`` is the host that looks, if one does.
    """

    feed: str
    place: str
    fleet: Fleet
    leases: Sequence[Lease]
    keymap: KeyMap
    metrics: Mapping[str, Metrics] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    me: str | None = None
    balance: str = ""


def fleet_status(
    listed: FleetListing,
    reports: Mapping[str, Report],
    before: FleetStatus | None,
    *,
    now: float,
) -> FleetStatus:
    """Decide how things stand at ``now``, in wall-clock time. ``reports`` are what hosts said,
    by their names.
    """
    fleet = listed.fleet
    readable = {x.range_id for x in listed.keymap.readable()}
    told = {
        (report.host, seen.range): seen
        for report in reports.values()
        for seen in report.ranges
        if seen.owner == report.host
    }
    coming = {x.child.range.id: x.child.range for x in listed.keymap.new_leases}
    past, unleased = _without_lease(listed, coming)
    ranges = [
        _range_seen(
            x,
            listed.metrics.get(x.range_id, _NOTHING),
            told.get((x.owner or "", x.range_id)),
            waits=x.range_id not in readable,
            expired=x.owner in fleet.dead or x.range_id in fleet.expired,
        )
        for x in listed.leases
        if x.range_id not in coming
    ]
    ranges = sorted([*ranges, *unleased], key=lambda x: x.range)
    hosts = _hosts(fleet, ranges, reports, now)
    mine = [x for x in ranges if listed.me in (None, x.owner)]
    news = [] if before is None else moves_between(before.ranges, ranges, at=now)
    old_moves = () if before is None else before.moves
    return FleetStatus(
        at=now,
        clock=fleet.at.answered,
        feed=listed.feed,
        leases=listed.place,
        expiration=fleet.expiration,
        balance=listed.balance,
        hosts=hosts,
        ranges=ranges,
        past=past,
        problems=listed.problems,
        moves=[*reversed(news), *old_moves][:_MOVES],
        moved=len(news) + (0 if before is None else before.moved),
        hour=hour_with(() if before is None else before.hour, mine, now),
    )


def _range_seen(
    lease: Lease, metrics: Metrics, told: Metrics | None, *, waits: bool, expired: bool
) -> RangeStatus:
    """``told`` is what the owner of the lease says."""
    if told is not None:
        metrics = _merged(metrics, told)
    idle = metrics.lag == 0 and not metrics.rate
    state, note, since = _state(lease, idle=idle, waits=waits, expired=expired)
    return RangeStatus(
        range=lease.range_id,
        state=state,
        since=since,
        note=note,
        owner=lease.owner,
        next_owner=lease.next_owner,
        epoch=lease.epoch,
        parents=lease.range.parents,
        low=lease.range.low,
        high=lease.range.high,
        load=lease.known_load,
        progress_at=lease.health.last_progress,
        waiting=lease.health.waiting,
        oldest=lease.health.oldest,
        position=metrics.position,
        lag=metrics.lag,
        lag_seconds=_rounded(metrics.lag_seconds),
        rate=_rounded(metrics.rate),
        checkpoint_at=metrics.checkpoint_at,
        owned_since=metrics.owned_since,
    )


def _merged(measured: Metrics, told: Metrics) -> Metrics:
    """What is measured here goes first, but that the owner knows best how fast it is."""
    fields = Metrics.__struct_fields__
    here = {x: value for x in fields if (value := getattr(measured, x)) is not None}
    both = Metrics(**{**{x: getattr(told, x) for x in fields}, **here})
    return both if told.rate is None else replace(both, rate=told.rate)


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 1)


_Said = tuple[RangeState, str | None, float | None]


def _state(lease: Lease, *, idle: bool, waits: bool, expired: bool) -> _Said:
    """Return what to show first, why, and since when: the worst thing a person can mend."""
    if lease.ended:
        return "ended", None, None
    if lease.paused is not None:
        return "paused", lease.paused, None
    if lease.owner is None and waits:
        return "waiting", "others have its keys", None
    if lease.owner is None:
        return "unowned", f"no host has its lease{_left_behind(lease.health)}", None
    if expired:
        return "expired", "its owner gives no sign of life", lease.stamp
    state: RangeState = "idle" if idle else "reading"
    return _observer_state(lease.health) or (state, lease.deaths.note, None)


def _left_behind(health: RangeHealth) -> str:
    """Say how its observer got on when it was last read: a stopped fleet still shows it."""
    said = _observer_state(health)
    return "" if said is None else f"; its observer was {said[0]}: {said[1]}"


def _observer_state(health: RangeHealth) -> _Said | None:
    """Return what is wrong with the observer of a range, if anything is."""
    if health.stuck_since is not None:
        note = (
            "a call of the observer does not come back, or it does not acknowledge what it "
            "was given"
        )
        failed = f"; before, it failed: {health.last_error}" if health.failing_since else ""
        return "stuck", note + failed, health.stuck_since
    if health.failing_since is not None:
        return "failing", _what_fails(health), health.failing_since
    return None


def _what_fails(health: RangeHealth) -> str | None:
    oldest = health.oldest
    if oldest is None:
        return health.last_error
    if oldest.next_try is None:
        return f"the observer fails on everything: {health.last_error}"
    keys = "1 key waits" if health.waiting == 1 else f"{health.waiting} keys wait"
    times = "once" if oldest.tries == 1 else f"{oldest.tries} times"
    at = datetime.fromtimestamp(oldest.next_try, UTC)
    return (
        f"{keys} for another try, the longest {oldest.key!r}: change {oldest.sequence} failed "
        f"{times}, is tried next at {at:%H:%M:%S} UTC: {oldest.error}"
    )


def _without_lease(
    listed: FleetListing, coming: Mapping[RangeId, FeedRange]
) -> tuple[list[RangeStatus], list[RangeStatus]]:
    """Part the ranges that have no lease into ancestors of others, and what is to be read.

    Parents come first. What others hold keys of waits for them: a range that was merged is read
    in parts first. Of those that are ``coming`` the next host makes a lease.
    """
    leased = listed.keymap.leases.keys() - coming
    ranges = [*{**{x.id: x for x in listed.keymap.ranges}, **coming}.values()]
    ancestors = set[RangeId]()
    for found in reversed(ranges):
        if found.id in leased or found.id in ancestors:
            ancestors.update(found.parents)
    waiting = set[RangeId]()
    past, rows = [], []
    for found in ranges:
        if found.id in leased:
            continue
        metrics = listed.metrics.get(found.id, _NOTHING)
        if found.id in ancestors:
            past.append(_unleased(found, "ended", "it has no lease any more", metrics))
            continue
        after = any(x in leased or x in waiting or x in coming for x in found.parents)
        if found.id not in coming and (after or listed.keymap.is_held(found)):
            waiting.add(found.id)
            rows.append(_unleased(found, "waiting", "others have its keys", metrics))
        else:
            rows.append(_unleased(found, "unowned", "there is no lease of it yet", metrics))
    return past[-_PAST:], rows


def _unleased(found: FeedRange, state: RangeState, note: str, metrics: Metrics) -> RangeStatus:
    return RangeStatus(
        range=found.id,
        state=state,
        note=note,
        parents=found.parents,
        low=found.low,
        high=found.high,
        lag=metrics.lag,
        lag_seconds=_rounded(metrics.lag_seconds),
        leased=False,
    )


def _hosts(
    fleet: Fleet, ranges: Sequence[RangeStatus], reports: Mapping[str, Report], now: float
) -> list[HostStatus]:
    owned: dict[str, list[RangeStatus]] = {}
    for seen in ranges:
        if seen.owner is not None and seen.state != "ended":
            owned.setdefault(seen.owner, []).append(seen)
    recorded = []
    members = [x for _, x in sorted(fleet.members.items()) if not is_placeholder(x)]
    for x in members:
        report = reports.get(x.name) or Report(host=x.name)
        is_dead = x.name in fleet.dead
        recorded.append(
            HostStatus(
                name=x.name,
                state="dead" if is_dead else "stopping" if x.stopping else "running",
                total=totals(owned.get(x.name, ())),
                address=x.address,
                version=report.version or x.software,
                incarnation=x.incarnation,
                heartbeats=x.heartbeats,
                stamp_age=None if x.stamp is None else round(now - x.stamp, 1),
                still=fleet.at.answered - fleet.still_since[x.name],
                started_at=report.started_at,
                loop_lag=report.loop_lag,
            )
        )
    others = sorted(owned.keys() - {x.name for x in recorded})
    foreign = [HostStatus(name=x, state="foreign", total=totals(owned[x])) for x in others]
    return [*recorded, *foreign]


def problem_of_feed(error: FeedError) -> Problem:
    return Problem(
        kind="unavailable" if isinstance(error, FeedUnavailable) else "refused",
        range=error.range_id if isinstance(error, RangeRefused) else None,
        message=str(error),
    )
