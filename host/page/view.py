"""What the page shows of a fleet at one moment, as values, and what of it has changed.

They come from a host itself (``host_source``) or from the lease container and the members'
endpoints (``fleet_source``); the page cannot tell which. Times are seconds since 1970.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from changefeed.feeds.feed import FeedRange
from changefeed.host.activity import Point
from changefeed.host.moves import LeaseMove
from changefeed.host.states import HostState, RangeState, range_state
from changefeed.leases.health import NOTHING_KNOWN, RangeHealth


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """``state`` is as in ``changefeed.host.states``. What only the host itself knows is
    ``None`` where its endpoints do not answer.
    """

    name: str
    state: HostState
    ranges: int
    address: str = ""
    incarnation: str = ""
    stamp: float | None = None
    since: float | None = None
    version: str | None = None
    rate: float | None = None
    lag: int | None = None
    late: float | None = None
    loop_lag: float | None = None
    load: float | None = None


class RangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """``since`` is when its owner acquired it, ``state_since`` since when it fails or is
    stuck, ``checkpoint_at`` when its position was last written, ``progress_at`` when its
    observer was last done with a batch. ``load`` is what it costs its owner: busy seconds in
    each second.
    """

    name: str
    state: RangeState
    parents: Sequence[str] = ()
    low: str = ""
    high: str = ""
    owner: str | None = None
    next_owner: str | None = None
    epoch: int = 0
    note: str | None = None
    state_since: float | None = None
    since: float | None = None
    position: str | None = None
    lag: int | None = None
    late: float | None = None
    rate: float | None = None
    checkpoint_at: float | None = None
    progress_at: float | None = None
    load: float | None = None


class PastRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range that has ended and has no lease any more: an ancestor in the picture."""

    name: str
    parents: Sequence[str] = ()
    low: str = ""
    high: str = ""


class PipelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a pipeline, or a pipeline that does not answer (``trouble``)."""

    address: str
    table: str
    changes: int | None = None
    rate: float | None = None
    lag: int | None = None
    trouble: str | None = None


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What concerns no single range: the feed cannot be read, say."""

    kind: str
    message: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """``me`` is the host that serves the page, empty for a dashboard. ``hour`` is about that
    host, or else the fleet. ``acts`` says whether the page can do anything, to who has the
    token. ``moves`` are the newest first; ``moved`` counts all of them. ``letters`` is how many
    dead letters there are, ``None`` if that is not known.
    """

    at: float
    me: str
    feed: str
    leases: str
    expiration: float
    hosts: Sequence[HostRow]
    ranges: Sequence[RangeRow]
    acts: bool = False
    past: Sequence[PastRange] = ()
    pipelines: Sequence[PipelineRow] = ()
    troubles: Sequence[Trouble] = ()
    moves: Sequence[LeaseMove] = ()
    moved: int = 0
    hour: Sequence[Point] = ()
    letters: int | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What its owner knows of a range, by itself or as it answers at ``/leases``."""

    since: float | None = None
    position: str | None = None
    lag: int | None = None
    late: float | None = None
    rate: float | None = None
    checkpoint_at: float | None = None


NOTHING = Known()


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease says of its range; ``waits`` and ``expired`` as the fleet sees it."""

    name: str
    parents: Sequence[str] = ()
    low: str = ""
    high: str = ""
    owner: str | None = None
    next_owner: str | None = None
    epoch: int = 0
    ended: bool = False
    paused: str | None = None
    health: RangeHealth = NOTHING_KNOWN
    load: float | None = None
    waits: bool = False
    expired: bool = False


def range_row(lease: Ownership, known: Known) -> RangeRow:
    state, note, since = _state(lease, known)
    return RangeRow(
        name=lease.name,
        state=state,
        parents=lease.parents,
        low=lease.low,
        high=lease.high,
        owner=lease.owner,
        next_owner=lease.next_owner,
        epoch=lease.epoch,
        note=note,
        state_since=since,
        since=known.since,
        position=known.position,
        lag=known.lag,
        late=None if known.late is None else round(known.late, 1),
        rate=None if known.rate is None else round(known.rate, 1),
        checkpoint_at=known.checkpoint_at,
        progress_at=lease.health.last_progress,
        load=lease.load,
    )


def _state(lease: Ownership, known: Known) -> tuple[RangeState, str | None, float | None]:
    return range_state(
        ended=lease.ended,
        paused=lease.paused,
        owner=lease.owner,
        health=lease.health,
        waits=lease.waits,
        expired=lease.expired,
        idle=known.lag == 0 and not known.rate,
    )


def without_lease(found: FeedRange, *, waits: bool) -> RangeRow:
    """Return the row of a range that hosts have made no lease of yet."""
    note = "there is no lease of it yet"
    if waits:
        note = f"for the end of {', '.join(found.parents)}"
    return RangeRow(
        name=found.id,
        state="waiting" if waits else "unowned",
        note=note,
        parents=found.parents,
        low=found.low,
        high=found.high,
    )


def totals(rows: Sequence[RangeRow]) -> tuple[float | None, int | None, float | None]:
    """Return rate, lag, and how late the latest is; ``None`` where no row knows."""
    rates = [x.rate for x in rows if x.rate is not None]
    lags = [x.lag for x in rows if x.lag is not None]
    late = [x.late for x in rows if x.late is not None]
    return (
        round(sum(rates), 1) if rates else None,
        sum(lags) if lags else None,
        max(late, default=None),
    )


def load_of(rows: Sequence[RangeRow]) -> float | None:
    """Return what ranges cost their owner together, ``None`` where no row knows."""
    loads = [x.load for x in rows if x.load is not None]
    return round(sum(loads), 2) if loads else None


def by_owner(rows: Collection[RangeRow]) -> Mapping[str, list[RangeRow]]:
    found: dict[str, list[RangeRow]] = {}
    for row in rows:
        if row.owner is not None and row.state != "ended":
            found.setdefault(row.owner, []).append(row)
    return found


def difference(before: View, after: View) -> dict[str, Any]:
    """Return what turns one view into the next: for ranges, only the fields that differ."""
    old = {x.name: x for x in before.ranges}
    new_moves = after.moved - before.moved
    found: dict[str, Any] = {
        "at": after.at,
        "changed": [_changed(old.get(x.name), x) for x in after.ranges if old.get(x.name) != x],
        "gone": sorted(old.keys() - {x.name for x in after.ranges}),
        "moves": list(after.moves[:new_moves]) if new_moves > 0 else [],
        "hour": [x for x in after.hour if not before.hour or x.at > before.hour[-1].at],
    }
    for name in ("hosts", "past", "pipelines", "troubles", "letters"):
        if getattr(before, name) != getattr(after, name):
            found[name] = getattr(after, name)
    return found


def _changed(old: RangeRow | None, new: RangeRow) -> Any:
    if old is None:
        return new
    fields = RangeRow.__struct_fields__
    differing = {x: value for x in fields if getattr(old, x) != (value := getattr(new, x))}
    return {"name": new.name, **differing}
