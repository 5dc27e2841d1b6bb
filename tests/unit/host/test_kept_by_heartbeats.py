"""One lease that heartbeats keep: how far they move its fence, and when they do not."""

import asyncio

import pytest

from changefeed.host.owned_lease import OwnedLease
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from tests.support import make
from tests.support.looking import now


class Owner:
    """Host a, which has acquired the lease: expiration 30 s, fence margin 1 s."""

    owned: OwnedLease

    def __init__(self) -> None:
        self.leases = MemoryLeases()

    async def begin(self) -> OwnedLease:
        await self.leases.create(make.lease(at="0"))
        self.owned = await make.owned(self.leases)
        return self.owned

    async def listed(self) -> Lease:
        (found,) = await self.leases.list()
        return found

    async def look(self) -> None:
        self.owned.listed(await self.listed(), asked=now())


async def holding() -> tuple[Owner, OwnedLease]:
    owner = Owner()
    return owner, await owner.begin()


async def test_heartbeats_count_no_longer_than_from_the_last_listing() -> None:
    owner, owned = await holding()
    await asyncio.sleep(4)
    await owner.look()
    for _ in range(5):
        await asyncio.sleep(5)
        owned.beat(sent=now())
    assert owned.time_left == 4 + 29 - 29
    await asyncio.sleep(5)
    assert not owned.may_act


async def test_a_heartbeat_that_is_answered_behind_the_fence_lifts_it_no_more() -> None:
    owner, owned = await holding()
    await asyncio.sleep(29)
    owned.beat(sent=28)
    await owner.look()
    owned.beat(sent=29)
    assert not owned.may_act


async def test_a_listing_lifts_a_fence_no_more_once_it_has_passed() -> None:
    owner, owned = await holding()
    await asyncio.sleep(5)
    await owner.look()
    for _ in range(3):
        await asyncio.sleep(9)
        owned.beat(sent=now())
    await asyncio.sleep(2)
    assert now() == 5 + 29
    await owner.look()
    with pytest.raises(LeaseLost, match="renewed in time"):
        owned.check()


async def test_a_listing_older_than_the_last_renewal_is_no_look_at_the_lease() -> None:
    owner, owned = await holding()
    before = await owner.listed()
    await asyncio.sleep(5)
    await owned.renew()
    await asyncio.sleep(5)
    owned.listed(before, asked=now())
    owned.beat(sent=now())
    assert owned.time_left == 5 + 29 - 10


async def test_a_lease_that_is_being_given_up_is_not_lost_to_its_own_release() -> None:
    owner, owned = await holding()
    stored = asyncio.Event()
    replace = owner.leases.replace

    async def answered_late(lease: Lease) -> Lease:
        released = await replace(lease)
        stored.set()
        await asyncio.sleep(1)
        return released

    owner.leases.replace = answered_late  # type: ignore[method-assign]
    giving_up = asyncio.create_task(owned.give_up(Lease.released, owned.stored))
    await stored.wait()
    await owner.look()
    assert not owned.lost
    await giving_up
    await owner.look()
    assert not owned.lost
