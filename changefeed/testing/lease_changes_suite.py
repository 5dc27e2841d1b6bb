"""What every lease container promises of listings by what has changed, and of the fleet, as
tests over the fixture ``leases``: those that list all leases each time agree by themselves.
"""

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet import LeaseListing
from changefeed.leases.lease import Member, Version
from changefeed.stores.store import WHOLE
from changefeed.testing.lease_cast import A1, B1, C1, A, B, new, not_refused


async def counts(leases: LeaseContainer) -> bool:
    """Whether a listing says how many leases and members there are."""
    return (await leases.list_fleet()).total is not None


async def test_a_listing_by_what_has_changed_shows_every_write(leases: LeaseContainer) -> None:
    listing = LeaseListing(leases.list_fleet, lambda: 0.0)

    async def agree() -> None:
        known, _ = await listing.list_fleet()
        stored = await leases.list()
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


async def test_a_listing_by_what_has_changed_shows_every_member(leases: LeaseContainer) -> None:
    listing = LeaseListing(leases.list_fleet, lambda: 0.0)

    async def agree() -> None:
        listed, known = await listing.list_fleet()
        assert [x.range_id for x in listed] == ["r0"]
        stored = await leases.members()
        assert {x.name: x for x in known} == {x.name: x for x in stored}
        assert len(known) == len(stored)

    await leases.create(new(RangeId("r0")))
    await agree()
    a = not_refused(await leases.put_member(Member(name=A, incarnation=A1)))
    await agree()
    await agree()
    b = not_refused(await leases.put_member(Member(name=B, incarnation=B1)))
    a = not_refused(await leases.put_member(replace(a, heartbeats=1, stamp=5.0)))
    await agree()
    b = not_refused(await leases.put_member(replace(b, stopping=True)))
    await agree()
    await leases.remove_member(b)
    await agree()
    await leases.remove_member(a)
    listing.doubt()  # one that did not say that it stops may be known for a minute
    await agree()


async def test_a_listing_of_the_fleet_writes_the_heartbeat_and_shows_leases_and_members(
    leases: LeaseContainer,
) -> None:
    other = not_refused(await leases.put_member(Member(name=B, incarnation=B1)))
    beating = not_refused(await leases.put_member(Member(name=A, incarnation=A1)))
    made = [await leases.create(new(RangeId(f"r{n}"))) for n in range(2)]
    first = await leases.list_fleet(WHOLE, replace(beating, heartbeats=1, stamp=5.0))
    written = first.heartbeat
    assert written is not None
    assert (written.heartbeats, written.stamp) == (1, 5.0)
    assert written.version != beating.version
    assert {x.name: x for x in first.members} == {A: written, B: other}
    assert {x.range_id: x for x in first.leases} == {x.range_id: x for x in await leases.list()}
    await leases.acquire(made[1].taken_by(A, A1))
    again = await leases.list_fleet(first.token, None)
    assert again.heartbeat is None
    assert {x.name: x for x in [other, written, *again.members]} == {A: written, B: other}
    (changed,) = [x for x in again.leases if x.range_id == "r1"]
    assert changed.owner == A
    assert changed.position is None
    assert again.total in {4, None}


async def test_a_heartbeat_on_a_record_written_since_is_refused_and_the_fleet_is_listed(
    leases: LeaseContainer,
) -> None:
    first = Member(name=A, incarnation=A1)
    found = await leases.list_fleet(WHOLE, first)
    stale = found.heartbeat
    assert stale is not None  # a record without a version is created
    fresh = not_refused(await leases.put_member(replace(stale, heartbeats=1)))
    for late in (replace(stale, heartbeats=2), first, replace(first, version=Version("x"))):
        found = await leases.list_fleet(WHOLE, late)
        assert found.heartbeat is None
        assert [*found.members] == [fresh]
    await leases.remove_member(fresh)
    found = await leases.list_fleet(WHOLE, replace(fresh, heartbeats=2))
    assert found.heartbeat is None
    assert list(found.members) == []
