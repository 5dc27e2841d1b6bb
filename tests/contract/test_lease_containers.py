"""Our lease containers keep the contract. A new one is one more line in CONTAINERS.

A harness makes a fresh container and hands out clients to it (see
``tests.support.lease_containers``). All run on an ordinary event loop, since some have
threads or sockets behind them; nothing here depends on time.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease, Member, Version
from changefeed.leases.listing import WHOLE, ListsFleet
from changefeed.leases.memory import MemoryLeases
from changefeed.testing import (
    lease_changes_suite,
    lease_race_suite,
    lease_suite,
    member_suite,
)
from changefeed.testing.contracts import suite_of
from changefeed.testing.lease_cast import as_written, whole
from tests.support import lease_containers as made
from tests.support import store_containers as stores
from tests.support.any_record import LEASES, MEMBERS, any_record
from tests.support.lease_containers import Connect

pytestmark = pytest.mark.real_time

CONTAINERS = [
    pytest.param(made.same_object(MemoryLeases), id="memory"),
    pytest.param(made.same_object(made.memory_separate), id="memory-separate"),
    pytest.param(made.same_object(made.memory_delayed), id="memory-delayed"),
    pytest.param(made.same_object(made.memory_separate_delayed), id="memory-separate-delayed"),
    pytest.param(made.opened_each(made.sqlite), id="sqlite"),
    pytest.param(made.opened_each(made.sqlite_separate), id="sqlite-separate"),
    pytest.param(made.cosmos, id="cosmos"),
    pytest.param(made.cosmos_separate, id="cosmos-separate"),
    pytest.param(made.cosmos_independent, id="cosmos-independent"),
    pytest.param(made.third_party, id="third-party"),
    pytest.param(stores.combined("postgres"), id="postgres"),
    pytest.param(stores.combined("redis"), id="redis"),
    pytest.param(stores.combined("blob"), id="blob"),
    pytest.param(stores.apart("postgres", "postgres"), id="postgres-separate"),
    pytest.param(stores.apart("redis", "redis"), id="redis-separate"),
    pytest.param(stores.apart("redis", "blob"), id="redis-with-blob"),
    pytest.param(stores.apart("redis", "postgres"), id="redis-with-postgres"),
    pytest.param(stores.apart("blob", "sqlite"), id="blob-with-sqlite"),
    pytest.param(stores.apart("postgres", "blob"), id="postgres-with-blob"),
]


@pytest.fixture(params=CONTAINERS)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    async with request.param(tmp_path) as connect:
        yield connect


@pytest.fixture
async def leases(connect: Connect) -> LeaseContainer:
    return await connect()


globals().update(suite_of(lease_suite, lease_changes_suite, lease_race_suite, member_suite))


async def test_the_fleet_is_listed_in_one_call_where_one_request_can_do_it(
    leases: LeaseContainer, request: pytest.FixtureRequest
) -> None:
    can = request.node.callspec.id.startswith(("memory", "sqlite", "redis", "postgres"))
    found = await leases.list_fleet(WHOLE, None) if isinstance(leases, ListsFleet) else None
    assert (found is not None) == can


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


# Errors
