"""The errors of leases, one for each thing a host does about it.

LeaseConflict               a write was refused: look at what is stored now, if anything is
LeaseLost                   it is no longer ours: stop reading, nothing to release
"""

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import Failure


class LeaseConflict(Failure):
    """The stored lease is not the one we read; it may be our own write, unanswered.

    ``lease`` is the copy we tried to write. ``stored`` is what there is now, without its
    position; ``None`` if there is no such lease: its range ended long ago, or an operator
    deleted it.
    """

    def __init__(self, lease: Lease, stored: Lease | None, reason: str = "") -> None:
        super().__init__(lease, stored, reason)  # args as given, so that it pickles
        self.lease = lease
        self.stored = stored
        self.reason = reason or _what_happened(stored)

    def __str__(self) -> str:
        return f"lease {self.lease.range_id!r} (owner {self.lease.owner!r}): {self.reason}"


class LeaseLost(Failure):
    """Another host owns it now, or we could not renew it in time, or it was deleted.

    ``lease`` is the copy that we have.
    """

    def __init__(self, lease: Lease, reason: str) -> None:
        super().__init__(lease, reason)
        self.lease = lease
        self.reason = reason

    def __str__(self) -> str:
        return f"lease {self.lease.range_id!r} (owner {self.lease.owner!r}): {self.reason}"


def _what_happened(stored: Lease | None) -> str:
    if stored is None:
        return "there is no such lease"
    return f"written since; now owned by {stored.owner!r} in epoch {stored.epoch}"


def checkpoint_is_lost(range_id: RangeId) -> str:
    """Say what it means that a lease has no position, and what to do."""
    return (
        f"lease {range_id!r} has no checkpoint any more: it was deleted, or evicted. Say where "
        f"to go on (changefeed reset {range_id} --to=...), and resume the range (changefeed "
        f"resume {range_id})"
    )
