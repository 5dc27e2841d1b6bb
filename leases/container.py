"""The little a host needs of the place where leases are kept."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import FleetRecord, Lease, Member
from changefeed.stores.store import WHOLE, CallLimits


class ListedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """Leases without their positions, and members: all, or those written since.

    ``total`` is how many leases and members there are, ``None`` if that is not known. ``token``
    is where the next listing begins; ``WHOLE`` where all are to be listed again. ``heartbeat``
    is the member record as it was written; ``None`` if none was given, or if another write of
    the record came before.
    """

    leases: Sequence[Lease]
    members: Sequence[Member]
    total: int | None
    token: str
    heartbeat: Member | None = None


class LeaseContainer(Protocol):
    """Keeps leases and records of hosts, and lets exactly one writer win.

    To renew, ask for, hand over or release a lease is one and the same call: change
    your copy, then ``replace`` the stored one with it. Every call may raise
    ``StoreUnavailable``: then a write may have happened, or may happen yet; and
    ``StoreRefused`` when asking again cannot help.
    Versions, names and ids may be any text, and long.
    """

    @property
    def renew_each(self) -> bool:
        """Whether each lease has to be renewed by its owner, as processors of another kind may
        share them, which know nothing of heartbeats.
        """
        ...

    def bounded(self, bounds: CallLimits) -> "LeaseContainer":
        """Return the same leases, with each call to their stores within bounds."""
        ...

    async def fleet(self) -> FleetRecord:
        """Return the record of the fleet; one without an id before there is any."""
        ...

    async def put_fleet(self, record: FleetRecord) -> FleetRecord | None:
        """Write it if no other write came since it was read; an empty version creates it.

        Return the stored copy, with its new version; ``None`` if it was refused.
        """
        ...

    async def members(self) -> Sequence[Member]:
        """Return every member record, in no particular order."""
        ...

    async def put_member(self, member: Member) -> Member | None:
        """Write a member record if no other write came since it was read.

        An empty version creates it. Return the stored copy, with its new version; ``None`` if
        the version has moved on or the record is there already.
        """
        ...

    async def remove_member(self, member: Member) -> None:
        """Forget a member, if the record is still the one given; else do nothing."""
        ...

    async def list(self) -> Sequence[Lease]:
        """Return every lease, in no particular order, without positions."""
        ...

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        """Return leases and members: all of them, or what was written since ``token`` was
        given, and perhaps more.

        ``heartbeat`` is written before, as ``put_member`` does it, in the same request where
        the container can. Where its version has moved on it is not written, and the rest is
        answered. If no answer came, it may have been written.
        """
        ...

    async def read(self, range_id: RangeId) -> Lease | None:
        """Return one lease whole, or ``None`` if there is no such lease.

        It has no position where that is lost: its range waits until a person says where
        to go on.
        """
        ...

    async def create(self, lease: Lease) -> Lease:
        """Store a new lease with its position, or return the one that is there.

        The answer may leave the position out.
        """
        ...

    async def replace(self, lease: Lease) -> Lease:
        """Write ``lease`` if no other write came since we read it.

        A lease that carries a position writes that as well, all or nothing as far
        as any reader of the next epoch can see. Return the copy as written, with its
        new version. Raise ``LeaseConflict`` if the version has moved on, or there is no
        such lease.
        """
        ...

    async def acquire(self, lease: Lease) -> Lease:
        """Like ``replace``, for a new epoch: return the lease whole, as ``read`` does.

        After it returns, no checkpoint under an older epoch can be written any more, not
        even by a writer that has not noticed yet. A position that ``lease`` carries
        is not written. If no answer came, acquire again, in another epoch, even where the
        stored lease turns out to be the one written; and so must a host that was made the
        owner by another's ``replace``.
        """
        ...

    async def checkpoint(self, lease: Lease) -> Lease:
        """Write the position that ``lease`` carries, under its epoch.

        What else the copy says may be written with it, or not: it is its owner's. Return the
        copy as written, with its new version. Raise ``LeaseConflict`` if the version or the
        epoch has moved on, or there is no such lease.
        """
        ...

    async def delete(self, lease: Lease) -> None:
        """Forget the lease, under the same rule as ``replace``."""
        ...
