"""The errors of leases, one for each thing a host does about it.

LeaseError                  about one lease; ``lease`` is the copy we tried to write
├── LeaseConflict           its version moved on: read again, and look for our own write
├── LeaseGone               there is no such lease: stop reading, nothing to release
└── LeaseLost               it is no longer ours: stop reading, nothing to release
MemberConflict              another process wrote the member record of our name: stop
CheckpointMissing           its checkpoint is gone, and others have theirs: a ``StoreRefused``
"""

from changefeed.leases.lease import Lease, Member
from changefeed.runtime.errors import Failure, StoreRefused


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


class CheckpointMissing(StoreRefused):
    """Nobody can tell where to go on in a range: checkpoints are kept apart, and its own is
    gone. ``lease`` is as it is stored, without a continuation.
    """

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self.lease = lease

    def __str__(self) -> str:
        name = self.lease.range_id
        return (
            f"lease {name!r} has no checkpoint in the checkpoint store: it was deleted there,"
            " or this is another store than the one the fleet began with. Put the right one"
            f" in its place, or say where to go on (changefeed reset {name} --to=...), and"
            f" resume the range (changefeed resume {name})"
        )
