"""What a person should look at in a fleet, in one form for ``status`` and ``/readyz``.

===========  ===============================================================================
kind         what it says
===========  ===============================================================================
failing      the observer fails on the range, again and again or for the first time
stuck        a call of the observer does not come back, or it does not acknowledge what it
             was given
paused       no host reads the range until it is resumed; the message is the reason
unowned      the range could be read, and no host has its lease, or there is no lease yet
expired      by its stamp the owner of the lease has long been dead, and none has taken it over
refused      the feed cannot be read, or this range, and a person has to change something
unavailable  the feed does not answer
===========  ===============================================================================

The last two are about what this process saw itself, the others about what leases say.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from changefeed.feeds.errors import FeedError, FeedUnavailable, RangeRefused
from changefeed.feeds.feed import RangeId
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import Lease, Member
from changefeed.leases.life import Heartbeats

Kind = Literal["failing", "stuck", "paused", "unowned", "expired", "refused", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """``range`` is ``None`` for what concerns them all, ``since`` where it is not known."""

    kind: Kind
    message: str
    range: str | None = None
    owner: str | None = None
    since: datetime | None = None


def problems_of_health(range_id: str, owner: str | None, health: RangeHealth) -> list[Problem]:
    """Return what is wrong with the observer of one range, as its owner sees it."""
    stuck = (
        "a call of the observer does not come back, or it does not acknowledge what it was "
        "given"
    )
    signs: tuple[tuple[Kind, float | None, str], ...] = (
        ("failing", health.failing_since, health.last_error or ""),
        ("stuck", health.stuck_since, stuck),
    )
    return [
        Problem(kind=kind, range=range_id, owner=owner, since=time_of(since), message=message)
        for kind, since, message in signs
        if since is not None
    ]


def problems_of_leases(
    leases: Sequence[Lease],
    members: Collection[Member] = (),
    *,
    readable: Collection[RangeId],
    now: float,
    longest_still: float,
) -> list[Problem]:
    """Return what the leases say, by range. ``readable`` are those that hosts may own.

    ``now`` is wall-clock time. A lease counts as expired if its stamp, and that of the record
    of its owner that keeps it, are older than ``longest_still`` seconds: longer than an owner
    may be silent, and than clocks may differ.
    """
    lives = Heartbeats().lives(leases, members)
    found: list[Problem] = []
    for lease in sorted(leases, key=lambda x: x.range_id):
        if lease.ended:
            continue
        found += problems_of_health(lease.range_id, lease.owner, lease.health)
        found += _of_ownership(
            lease,
            may_be_owned=lease.range_id in readable,
            stamp=lives[lease.range_id].newest_stamp if lease.owner else None,
            silent_from=now - longest_still,
        )
    return found


def _of_ownership(
    lease: Lease, *, may_be_owned: bool, stamp: float | None, silent_from: float
) -> Iterator[Problem]:
    kind: Kind
    if lease.paused is not None:
        kind, message = "paused", lease.paused
    elif lease.owner is None and may_be_owned:
        kind, message = "unowned", "no host has its lease"
    elif lease.owner is not None and stamp is not None and stamp <= silent_from:
        kind, message = "expired", "its owner shows no sign of life, and no host takes it over"
    else:
        return
    yield Problem(
        kind=kind,
        range=lease.range_id,
        owner=lease.owner,
        since=None if kind == "paused" else time_of(stamp or lease.stamp),
        message=message,
    )


def problem_without_lease(range_id: str) -> Problem:
    return Problem(kind="unowned", range=range_id, message="there is no lease of it yet")


def problem_of_feed(error: FeedError) -> Problem:
    return Problem(
        kind="unavailable" if isinstance(error, FeedUnavailable) else "refused",
        range=error.range_id if isinstance(error, RangeRefused) else None,
        message=str(error),
    )


def time_of(stamp: float | None) -> datetime | None:
    """Return seconds since 1970 as a time in UTC."""
    return None if stamp is None else datetime.fromtimestamp(stamp, UTC)
