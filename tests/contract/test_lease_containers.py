"""Our lease containers keep the contract, and what else all of them promise."""

import asyncio
import dataclasses

import pytest
from hypothesis import given
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet_record import (
    adopt_feed,
    join_fleet,
    require_feed,
    settle_root,
)
from changefeed.leases.lease import Lease, Member, Version
from changefeed.runtime.errors import StoreRefused
from changefeed.testing import (
    lease_changes_suite,
    lease_race_suite,
    lease_suite,
    member_suite,
)
from changefeed.testing.contracts import suite_of
from changefeed.testing.lease_cast import as_written, new, not_refused, whole
from tests.support import make
from tests.support.any_record import LEASES, MEMBERS, any_record
from tests.support.lease_containers import Connect

END = make.end(make.feed_range("r1"))

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
    await require_feed(leases, "first ü")
    joined = await join_fleet(leases, "first ü")
    assert joined.feed == "first ü"
    assert await join_fleet(leases, "first ü") == joined == await leases.fleet()
    for refuse in (join_fleet, join_fleet, require_feed):
        with pytest.raises(StoreRefused, match="first ü"):
            await refuse(leases, "second")
    assert (await adopt_feed(leases, "second")).feed == "second"
    assert (await join_fleet(leases, "second")).id == joined.id


async def test_a_container_without_leases_takes_another_feed_as_one_that_was_reset(
    leases: LeaseContainer,
) -> None:
    await join_fleet(leases, "first")
    await settle_root(leases, END)
    second = await join_fleet(leases, "second")
    assert (second.feed, second.root) == ("second", None)
    await leases.create(new())
    with pytest.raises(StoreRefused):
        await join_fleet(leases, "first")


async def test_hosts_that_start_together_are_one_fleet_with_one_root(connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]
    joined = await asyncio.gather(*(join_fleet(x, "feed") for x in clients))
    assert len({x.id for x in joined}) == 1
    ends = [replace(END, by=x) for x in ("feed", "split", "merge")]
    settled = await asyncio.gather(*map(settle_root, clients, ends))
    assert {await settle_root(x, END) for x in clients} == set(settled)
    assert len(set(settled)) == 1


async def test_the_record_of_a_fleet_is_written_in_the_version_that_was_read(
    leases: LeaseContainer,
) -> None:
    first = (await leases.fleet()).of_feed("feed")
    written = await leases.put_fleet(first)
    assert written is not None
    assert replace(written, version=first.version) == first
    assert await leases.put_fleet(first) is None
    assert await leases.put_fleet(replace(written, root=END)) is not None
    assert await leases.put_fleet(written) is None
    assert (await leases.fleet()).root == END


# Any text, any value


@any_record
@given(first=LEASES, second=LEASES)
async def test_every_field_of_a_lease_comes_back(
    leases: LeaseContainer, first: Lease, second: Lease
) -> None:
    await leases.create(first)
    found = await whole(leases, first.range_id)
    assert as_written(found) == first
    wanted = replace(
        second, range=dataclasses.replace(second.range, id=first.range_id), epoch=first.epoch
    )
    await leases.replace(replace(wanted, version=found.version))
    found = await whole(leases, first.range_id)
    assert as_written(found) == wanted
    (listed,) = await leases.list()
    assert as_written(listed) == wanted.without_position()
    await leases.delete(listed)


@any_record
@given(first=MEMBERS, second=MEMBERS)
async def test_every_field_of_a_member_comes_back(
    leases: LeaseContainer, first: Member, second: Member
) -> None:
    stored = not_refused(await leases.put_member(first))
    assert replace(stored, version=Version("")) == first
    stored = not_refused(
        await leases.put_member(replace(second, name=first.name, version=stored.version))
    )
    assert list(await leases.members()) == [stored]
    assert replace(stored, version=Version("")) == replace(second, name=first.name)
    await leases.remove_member(stored)
