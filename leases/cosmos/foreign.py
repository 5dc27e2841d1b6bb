"""Taking over the positions of other processors whose lease documents cannot be shared.

.NET leases need no import, if they are to go on under their prefix: a host takes them as
they are. This is for Java's leases, and for those that should live on elsewhere: in
another container, under another prefix, or in SQLite.

A lease of version 1 names its range by its bounds. Where these are those of a range the
feed has, the lease becomes that range's; else it stays what it is, a part, and the feed
reads it as such. A lease without a position is left out: its range was never read, and
starts where the settings say.
"""

from collections.abc import Sequence

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.feed import FeedRange
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.cosmos import documents
from changefeed.leases.cosmos.opening import IN_DOCUMENTS
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.cosmos.items import Items
from changefeed.stores.cosmos.opening import lease_address, open_container_at

_ALL = "SELECT * FROM c WHERE STARTSWITH(c.id, @begin)"


def may_be_alive(lease: Lease, *, now: float, expiration: float) -> bool:
    """Whether it has an owner who has written lately, by the clocks of both sides."""
    return bool(lease.owner) and lease.stamp is not None and now - lease.stamp < expiration


async def read_foreign(scheme: str, place: str, access: CosmosAccess) -> list[Lease]:
    """Read the leases at an address, of any version. Nothing there is changed."""
    mode = IN_DOCUMENTS[lease_address(scheme, place).mode]
    async with open_container_at(scheme, place, access) as (container, names):
        found = await Items(container).query(_ALL, begin=names.leases)
    if not found:
        raise StoreRefused(
            f"{container.where} has no leases under the prefix {names.prefix!r}: "
            "changefeed doctor lists the prefixes that it has"
        )
    for document in found:
        documents.check_mode(document, mode)
    return [documents.lease_in(x) for x in found]


def moved(before: Sequence[Lease], after: Sequence[Lease]) -> list[str]:
    """Return the owners that have written between two looks: they live.

    An owner that has stopped may leave its name and a fresh stamp behind, as Java's does.
    """
    stamps = {x.range.id: x.stamp for x in before}
    return sorted(
        {str(x.owner) for x in after if x.owner and x.stamp != stamps.get(x.range.id)}
    )


def imported(found: Sequence[Lease], ranges: Sequence[FeedRange]) -> list[Lease]:
    """Return the leases to create, for a feed with these ranges."""
    return [
        Lease(range=_in_feed(x.range, ranges), checkpoint=Checkpoint(x.position))
        for x in found
        if x.position is not None
    ]


def _in_feed(place: FeedRange, ranges: Sequence[FeedRange]) -> FeedRange:
    for known in ranges:
        if known.id == place.id:
            return known
        if place.high and (known.low, known.high) == (place.low, place.high):
            return known
    return place
