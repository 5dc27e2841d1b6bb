"""The little a host needs of the place where leases are kept."""

from collections.abc import Sequence
from typing import Protocol

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import Lease, Member


class Members(Protocol):
    """Keeps one record for each host.

    Raises ``ContainerUnavailable`` when no answer came, and ``ContainerRefused`` when
    asking again cannot help.
    """

    async def members(self) -> Sequence[Member]:
        """Return every member record, in no particular order."""
        ...

    async def put_member(self, member: Member) -> Member:
        """Write a member record if no other write came since it was read.

        An empty version creates it. Return the stored copy, with its new version; raise
        ``MemberConflict`` if the version has moved on or the record is there already.
        """
        ...

    async def remove_member(self, member: Member) -> None:
        """Forget a member, if the record is still the one given; else do nothing."""
        ...


class LeaseContainer(Members, Protocol):
    """Keeps leases, and lets exactly one writer win.

    To renew, ask for, hand over or release a lease is one and the same call: change
    your copy, then ``replace`` the stored one with it. Every call may raise
    ``ContainerUnavailable``: then a write may have happened, or may happen yet.
    Versions, names and ids may be any text, and long.
    """

    async def list(self) -> Sequence[Lease]:
        """Return every lease, in no particular order, without continuations."""
        ...

    async def read(self, range_id: RangeId) -> Lease | None:
        """Return one lease whole, or ``None`` if there is no such lease."""
        ...

    async def create(self, lease: Lease) -> Lease:
        """Store a new lease with its continuation, or return the one that is there.

        The answer may leave the continuation out.
        """
        ...

    async def replace(self, lease: Lease) -> Lease:
        """Write ``lease`` if no other write came since we read it.

        A lease that carries a continuation writes that as well, all or nothing as far
        as any reader of the next epoch can see. Return the copy as written, with its
        new version. Raise ``LeaseConflict`` if the version has moved on, ``LeaseGone``
        if there is no such lease.
        """
        ...

    async def acquire(self, lease: Lease) -> Lease:
        """Like ``replace``, for a new epoch: return the lease whole.

        After it returns, no checkpoint under an older epoch can be written any more, not
        even by a writer that has not noticed yet. A continuation that ``lease`` carries
        is not written. If no answer came, acquire again, even where the stored lease
        turns out to be the one written; and so must a host that was made the owner by
        another's ``replace``.
        """
        ...

    async def checkpoint(self, lease: Lease) -> Lease:
        """Write the continuation that ``lease`` carries, under its epoch; nothing else.

        Return the copy as written, with its new version. Raise ``LeaseConflict`` if the
        version or the epoch has moved on, ``LeaseGone`` if there is no such lease.
        """
        ...

    async def delete(self, lease: Lease) -> None:
        """Forget the lease, under the same rule as ``replace``."""
        ...
