"""Looking from outside: who owns what and how much is left to do, and how far tables are."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import HostName, Lease, Member

from .observer import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The leases at one moment, and how many changes observers are done with.

    ``members`` are the hosts that have said that they are there.
    """

    owners: Mapping[RangeId, HostName | None]
    members: AbstractSet[HostName]
    done: int
    total: int

    def held_by(self, host: str) -> Sequence[RangeId]:
        return [x for x, owner in sorted(self.owners.items()) if owner == host]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSight:
    """How many changes a table has taken in, and in how many batches."""

    table: str
    batches: int
    done: int
    total: int


def availability(
    leases: Iterable[Lease],
    members: Iterable[Member],
    figures: Iterable[Figures],
    *,
    total: int,
) -> Availability:
    """Return what is known from the leases and from what the observers have kept."""
    return Availability(
        owners={x.range_id: x.owner for x in leases},
        members={x.name for x in members},
        done=sum(x.up_to for x in figures),
        total=total,
    )
