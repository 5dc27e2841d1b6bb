"""Looking from outside: who owns what and how much is left to do, and how far tables are."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from changefeed.feeds.feed import Feed, RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The leases at one moment, each with the number of changes after its checkpoint."""

    leases: Sequence[tuple[Lease, int]]
    total: int

    @property
    def owners(self) -> Mapping[RangeId, HostName | None]:
        return {x.range_id: x.owner for x, _ in self.leases}

    @property
    def done(self) -> int:
        """How many changes lie before the checkpoints."""
        if not self.leases:
            return 0
        return self.total - sum(left for _, left in self.leases)

    def held_by(self, host: str) -> Sequence[RangeId]:
        return [x for x, owner in sorted(self.owners.items()) if owner == host]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSight:
    """How many changes a table has taken in, and in how many batches."""

    table: str
    batches: int
    done: int
    total: int


async def look(feed: Feed, container: LeaseContainer, *, total: int) -> Availability:
    """Read all leases. While some are still being created, nothing counts as done."""
    ranges = await feed.ranges()
    found = await asyncio.gather(*(container.read(x.id) for x in ranges))
    leases = [x for x in found if x is not None]
    if len(leases) < len(ranges):
        return Availability(leases=(), total=total)
    left = await asyncio.gather(*(_left(feed, x) for x in leases))
    return Availability(leases=list(zip(leases, left, strict=True)), total=total)


async def _left(feed: Feed, lease: Lease) -> int:
    assert lease.continuation is not None, "a lease that was read whole carries one"
    return await feed.lag(lease.range_id, lease.continuation)
