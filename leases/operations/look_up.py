"""Reading a lease for what it says besides its position."""

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import CheckpointMissing
from changefeed.leases.lease import Lease


async def look_up(container: LeaseContainer, range_id: RangeId) -> Lease | None:
    """Read a lease; without a continuation where its checkpoint is lost."""
    try:
        return await container.read(range_id)
    except CheckpointMissing as missing:
        return missing.lease
