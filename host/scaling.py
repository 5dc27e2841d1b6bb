"""How many hosts a fleet should have, by what lies behind its leases."""

from collections.abc import Collection
from math import ceil

from changefeed.host.snapshot import LeaseStatus, Snapshot

DEFAULT_LAG_PER_HOST = 10_000


def desired_hosts(seen: Snapshot, *, lag_per_host: int) -> int:
    """Return the lag divided by ``lag_per_host``, rounded up, and no more than can be used.

    Only ranges count that hosts may read: not paused, and not ended unless what they go on in
    has no lease yet. More hosts than such
    ranges would stand by. A range that has no lease yet, or whose lag is not known, may have
    changes: then there is at least one host. Without any lag it is 0.
    """
    readable = [x for x in seen.leases if x.paused is None and not (x.ended and not x.lag)]
    unknown = bool(seen.ranges_without_lease) or any(x.lag is None for x in readable)
    wanted = ceil(_total(readable) / lag_per_host)
    most = len(readable) + len(seen.ranges_without_lease)
    return min(max(wanted, int(unknown)), most)


def _total(leases: Collection[LeaseStatus]) -> int:
    return sum(x.lag or 0 for x in leases)
