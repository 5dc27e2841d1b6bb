"""What has changed between two looks at a fleet: who took what from whom, and what to send."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from changefeed.fleet.status import (
    FleetStatus,
    LeaseMove,
    MoveKind,
    RangeStatus,
    TrendPoint,
    totals,
)

_POINT_EVERY = 10.0
_HOUR = 3600.0


def moves_between(
    before: Sequence[RangeStatus], after: Sequence[RangeStatus], *, at: float
) -> list[LeaseMove]:
    """Return what happened to leases, by range. What came and went in between was not seen."""
    known = {x.range: x for x in before if x.leased}
    return [
        move for new in after if new.leased for move in _moves_of(known.get(new.range), new, at)
    ]


def _moves_of(old: RangeStatus | None, new: RangeStatus, at: float) -> Iterator[LeaseMove]:
    move = partial(LeaseMove, at=at, range=new.range)
    if old is None:
        yield move(kind="created")
        old = RangeStatus(range=new.range, state="unowned")
    if _reason(new) != _reason(old):
        kind: MoveKind = "resumed" if _reason(new) is None else "paused"
        yield move(kind=kind, note=_reason(new))
    if new.state == "ended" != old.state:
        yield move(kind="ended", of=old.owner)
    elif new.owner != old.owner:
        kind = "released" if new.owner is None else "acquired" if old.owner is None else "moved"
        yield move(kind=kind, of=old.owner, to=new.owner)
    if new.next_owner not in (None, old.next_owner):
        yield move(kind="requested", of=new.owner, to=new.next_owner)


def _reason(seen: RangeStatus) -> str | None:
    return seen.note if seen.state == "paused" else None


def hour_with(
    before: Sequence[TrendPoint], ranges: Sequence[RangeStatus], now: float
) -> Sequence[TrendPoint]:
    """Return the points of the last hour, with one more if the last is old enough."""
    if before and 0 <= now - before[-1].at < _POINT_EVERY:
        return before
    total = totals(ranges)
    point = TrendPoint(now, total.rate or 0.0, total.lag_at_least or 0, total.lag_seconds)
    return [*(x for x in before if now - _HOUR <= x.at < now), point]


def difference(before: FleetStatus, after: FleetStatus) -> dict[str, Any]:
    """Return what turns one status into the next: for ranges, only the fields that differ."""
    old = {x.range: x for x in before.ranges}
    new_moves = after.moved - before.moved
    found: dict[str, Any] = {
        "at": after.at,
        "changed": [
            _changed(old.get(x.range), x) for x in after.ranges if old.get(x.range) != x
        ],
        "gone": sorted(old.keys() - {x.range for x in after.ranges}),
        "moves": list(after.moves[:new_moves]) if new_moves > 0 else [],
        "hour": [x for x in after.hour if not before.hour or x.at > before.hour[-1].at],
    }
    for name in ("hosts", "past", "problems"):
        if getattr(before, name) != getattr(after, name):
            found[name] = getattr(after, name)
    return found


def _changed(old: RangeStatus | None, new: RangeStatus) -> Any:
    if old is None:
        return new
    fields = RangeStatus.__struct_fields__
    differing = {x: value for x in fields if getattr(old, x) != (value := getattr(new, x))}
    return {"range": new.range, **differing}
