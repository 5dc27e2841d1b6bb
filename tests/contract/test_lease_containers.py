"""Our lease containers keep the contract, and what else all of them promise."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.feed_identity import (
    compare_feeds,
    refuse_another_feed,
)
from changefeed.leases.lease import Lease, Member, Version
from changefeed.leases.timeouts import BoundedContainer
from changefeed.runtime.errors import StoreRefused
from changefeed.testing import (
    lease_changes_suite,
    lease_race_suite,
    lease_suite,
    member_suite,
)
from changefeed.testing.contracts import suite_of
from changefeed.testing.lease_cast import as_written, new, whole
from tests.support.any_record import LEASES, MEMBERS, any_record
from tests.support.lease_containers import Connect

pytestmark = pytest.mark.real_time

globals().update(suite_of(lease_suite, lease_changes_suite, lease_race_suite, member_suite))


async def test_hosts_that_start_together_make_one_container(connect: Connect) -> None:
    async def start(n: int) -> None:
        await (await connect()).create(new(RangeId(f"r{n}")))

    await asyncio.gather(*(start(n % 3) for n in range(6)))
    assert sorted(x.range_id for x in await (await connect()).list()) == ["r0", "r1", "r2"]


# The feed that leases are about


async def test_leases_of_a_feed_that_was_recreated_are_refused(
    leases: LeaseContainer,
) -> None:
    await leases.create(new())  # of before anybody said a feed: they take the first
    assert await compare_feeds(leases, "first ü") is None
    await refuse_another_feed(leases, "first ü")
    assert await leases.feed_identity() == "first ü"
    assert await compare_feeds(leases, "first ü") == "first ü"
    for refuse in (refuse_another_feed, refuse_another_feed, compare_feeds):
        with pytest.raises(StoreRefused, match="first ü"):
            await refuse(leases, "second")


async def test_a_container_without_leases_takes_another_feed_as_one_that_was_reset(
    leases: LeaseContainer,
) -> None:
    await refuse_another_feed(leases, "first")
    await refuse_another_feed(leases, "second")
    await leases.create(new())
    with pytest.raises(StoreRefused):
        await refuse_another_feed(leases, "first")
    bounded = BoundedContainer(leases, timeout=30, on_call=lambda _: None)
    await bounded.keep_feed_identity("third")
    await refuse_another_feed(bounded, "third")


# Any text, any value


@any_record
@given(first=LEASES, second=LEASES)
async def test_every_field_of_a_lease_comes_back(
    leases: LeaseContainer, first: Lease, second: Lease
) -> None:
    await leases.create(first)
    found = await whole(leases, first.range_id)
    assert as_written(found) == first
    wanted = replace(second, range=replace(second.range, id=first.range_id), epoch=first.epoch)
    await leases.replace(replace(wanted, version=found.version))
    found = await whole(leases, first.range_id)
    assert as_written(found) == wanted
    (listed,) = await leases.list()
    assert as_written(listed) == wanted.without_continuation()
    await leases.delete(listed)


@any_record
@given(first=MEMBERS, second=MEMBERS)
async def test_every_field_of_a_member_comes_back(
    leases: LeaseContainer, first: Member, second: Member
) -> None:
    stored = await leases.put_member(first)
    assert replace(stored, version=Version("")) == first
    stored = await leases.put_member(replace(second, name=first.name, version=stored.version))
    assert list(await leases.members()) == [stored]
    assert replace(stored, version=Version("")) == replace(second, name=first.name)
    await leases.remove_member(stored)
