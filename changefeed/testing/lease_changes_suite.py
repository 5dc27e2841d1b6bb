"""What every lease container promises of listings by what has changed, as tests over the
fixture ``leases``: those that list all leases each time agree by themselves.
"""

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.listing import WHOLE, LeaseListing, ListsChanges
from changefeed.testing.lease_cast import A1, C1, A, new


async def counts(leases: LeaseContainer) -> bool:
    """Whether a listing of what has changed says how many leases there are."""
    if not isinstance(leases, ListsChanges):
        return True  # all are listed, always
    whole = await leases.changes_since(WHOLE)
    return whole is None or whole.total is not None


async def test_a_listing_by_what_has_changed_shows_every_write(leases: LeaseContainer) -> None:
    listing = LeaseListing(leases, lambda: 0.0)

    async def agree() -> None:
        known, stored = await listing.list(), await leases.list()
        assert {x.range_id: x for x in known} == {x.range_id: x for x in stored}
        assert len(known) == len(stored)

    await agree()
    made = [await leases.create(new(RangeId(f"r{n}"))) for n in range(3)]
    await agree()
    owned = await leases.acquire(made[1].taken_by(A, A1))
    await agree()
    owned = await leases.checkpoint(owned.advanced_to(C1))
    await agree()
    await leases.replace(owned.released())
    await agree()
    await leases.delete(made[2])
    if not await counts(leases):
        listing.doubt()  # deletes are seen when all are listed
    await agree()
    await leases.create(new(RangeId("r2")))
    await agree()
