"""The errors of leases, one for each thing a host does about it.

LeaseError                  about one lease; ``lease`` is the copy we tried to write
├── LeaseConflict           its version moved on: read again, and look for our own write
├── LeaseGone               there is no such lease: stop reading, nothing to release
└── LeaseLost               it is no longer ours: stop reading, nothing to release
MemberConflict              another process wrote the member record of our name: stop
"""

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import Lease, Member
from changefeed.runtime.errors import Failure


class LeaseError(Failure):
    """A lease could not be written. ``lease`` is the copy we tried to write."""

    def __init__(self, lease: Lease, reason: str) -> None:
        super().__init__(lease, reason)  # args as given, so that it pickles
        self.lease = lease
        self.reason = reason

    def __str__(self) -> str:
        return f"lease {self.lease.range_id!r} (owner {self.lease.owner!r}): {self.reason}"


class LeaseConflict(LeaseError):
    """The stored lease is not the one we read; it may be our own write, unanswered."""


class LeaseGone(LeaseError):
    """It was deleted: the range ended long ago, or an operator reset the container."""


class LeaseLost(LeaseError):
    """Another host owns it now, or we could not renew it in time."""


class MemberConflict(Failure):
    """The member record is not the one we wrote. ``member`` is the copy we tried to write."""

    def __init__(self, member: Member, reason: str) -> None:
        super().__init__(member, reason)
        self.member = member
        self.reason = reason

    def __str__(self) -> str:
        return f"host {self.member.name!r}: {self.reason}"


def checkpoint_is_lost(range_id: RangeId) -> str:
    """Say what it means that a lease has no position, and what to do."""
    return (
        f"lease {range_id!r} has no checkpoint any more: it was deleted, or evicted. Say where "
        f"to go on (changefeed reset {range_id} --to=...), and resume the range (changefeed "
        f"resume {range_id})"
    )
