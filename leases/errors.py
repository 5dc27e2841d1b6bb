"""The errors of leases, one for each thing a host does about it.

LeaseError                  about one lease; ``lease`` is the copy we tried to write
├── LeaseConflict           its version moved on: read again, and look for our own write
├── LeaseGone               there is no such lease: stop reading, nothing to release
└── LeaseLost               it is no longer ours: stop reading, nothing to release
MemberConflict              another process wrote the member record of our name: stop
ContainerError
├── ContainerUnavailable    no answer: a write may have happened, or may yet
└── ContainerRefused        asking again cannot help: stop, and say so to a person
    ├── ContainerMissing    there is none yet: nothing to look at; a host may make it
    └── CheckpointMissing   ... about this lease, if others have their checkpoints
"""

from changefeed.leases.lease import Lease, Member
from changefeed.runtime.errors import Failure, UserError


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


class ContainerError(Failure):
    """The lease container as a whole."""


class ContainerUnavailable(ContainerError):
    """No answer came, in time or at all. A write may have happened, or may yet.

    ``retry_after`` is in seconds, if the container knows.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason, retry_after)
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.reason


class ContainerRefused(ContainerError, UserError):
    """Not a lease container, of another version, not permitted. The text is the advice."""


class ContainerMissing(ContainerRefused):
    """There is no such container, or its name is wrong. ``made_by_run`` says that
    ``changefeed run`` makes it without being told to.
    """

    def __init__(self, reason: str, *, made_by_run: bool = False) -> None:
        super().__init__(reason)
        self.made_by_run = made_by_run


class CheckpointMissing(ContainerRefused):
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
