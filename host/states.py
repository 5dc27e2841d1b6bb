"""The states of ranges and hosts, in one vocabulary for all that show a fleet.

=========  =============================================================================
a range    what it says
=========  =============================================================================
reading    its owner reads it, and has something to do
idle       its owner reads it, and there is nothing to do
failing    its observer fails on it, again and again or for the first time
stuck      a call of its observer does not come back
paused     no host reads it until it is resumed
waiting    others have its keys: no host may own its lease
unowned    it could be read, and no host has its lease, or there is no lease yet
expired    it has an owner that gives no sign of life, and no host has taken it over
ended      it has been read to its end
=========  =============================================================================

A host is running, stopping, silent (it gives no sign of life), or foreign (it owns leases and
keeps no record).
"""

from collections.abc import Collection, Hashable
from typing import Literal

from changefeed.host.settings import LeaseSettings
from changefeed.leases.expiry import ExpiryWatch, Moment
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import HostName, Member

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
HostState = Literal["running", "stopping", "silent", "foreign"]


def range_state(
    *,
    ended: bool,
    paused: str | None,
    owner: str | None,
    health: RangeHealth,
    waits: bool,
    expired: bool,
    idle: bool,
) -> tuple[RangeState, str | None, float | None]:
    """Return what to show first, why, and since when: the worst thing a person can mend.

    ``waits`` and ``expired`` are as the fleet sees it, ``idle`` as its owner does.
    """
    if ended:
        return "ended", None, None
    if paused is not None:
        return "paused", paused, None
    if owner is None and waits:
        return "waiting", "others have its keys", None
    if owner is None:
        return "unowned", "no host has its lease", None
    if expired:
        return "expired", "its owner gives no sign of life", None
    return _of_owned(health, idle=idle)


def _of_owned(
    health: RangeHealth, *, idle: bool
) -> tuple[RangeState, str | None, float | None]:
    if health.stuck_since is not None:
        note = (
            "a call of the observer does not come back, or it does not acknowledge what it "
            "was given"
        )
        return "stuck", note, health.stuck_since
    if health.failing_since is not None:
        return "failing", health.last_error, health.failing_since
    return ("idle" if idle else "reading"), None, None


def host_state(*, silent: bool, stopping: bool) -> HostState:
    return "silent" if silent else "stopping" if stopping else "running"


class MemberWatch:
    """Which hosts give no sign of life, from one look at a fleet to the next.

    Only a record that stands still for the whole expiration shows it. Who has just begun to
    look goes by the stamps, until a record moves: the clock of its host may be wrong.
    """

    def __init__(self, settings: LeaseSettings) -> None:
        self._expiration = settings.expiration
        self._watch = ExpiryWatch[HostName](
            expiration=settings.expiration,
            max_clock_skew=settings.max_clock_skew,
            renew_interval=settings.renew_interval,
        )
        self._first: dict[HostName, Hashable] = {}

    def silent(self, members: Collection[Member], at: Moment) -> set[HostName]:
        """Take in a look, and return the names of the hosts that are silent."""
        by_name = {x.name: x for x in members}
        still = self._watch.expired(by_name, at)
        for name, member in by_name.items():
            self._first.setdefault(name, member.sign_of_life)
        old = {
            name
            for name, member in by_name.items()
            if member.sign_of_life == self._first[name]
            and member.stamp is not None
            and at.wall - member.stamp > self._expiration
        }
        return still | old
