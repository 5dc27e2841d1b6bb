"""Positions that are saved from one container and given back to another, of each kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from changefeed.feeds.feed import Continuation
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.feed_identity import KeepsFeedIdentity
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.operations.restore import Change
from changefeed.leases.position_file import read, written
from changefeed.testing.lease_cast import A1, A
from tests.support import lease_containers as made
from tests.support import store_containers as stores
from tests.unit.leases.test_restore import facts, filled, lease, restored, whole

pytestmark = pytest.mark.real_time

KINDS = [
    pytest.param(made.opened_each(made.sqlite), id="sqlite"),
    pytest.param(made.opened_each(made.sqlite_separate), id="sqlite-separate"),
    pytest.param(made.cosmos, id="cosmos"),
    pytest.param(made.cosmos_separate, id="cosmos-separate"),
    pytest.param(stores.combined("postgres"), id="postgres"),
    pytest.param(stores.combined("redis"), id="redis"),
    pytest.param(stores.combined("blob"), id="blob"),
    pytest.param(stores.apart("redis", "postgres"), id="redis-with-postgres"),
    pytest.param(stores.apart("redis", "blob"), id="redis-with-blob"),
]
SAVED = [
    lease("r0", "9", ended=True, epoch=4),
    lease("r1", "3", parents=("r0",), epoch=2),
    lease("r2", "5", paused="bad data"),
]
WANTED = {
    "r0": ("9", True, None),
    "r1": ("3", False, None),
    "r2": ("5", False, "bad data"),
}


@pytest.fixture(params=KINDS)
async def container(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[LeaseContainer]:
    async with request.param(tmp_path) as connect:
        yield await connect()


def epochs(leases: list[Lease]) -> list[int]:
    return [x.epoch for x in leases]


async def test_what_was_saved_here_is_the_same_elsewhere(container: LeaseContainer) -> None:
    await filled(container, SAVED)
    document = written(await whole(container))
    other = MemoryLeases()
    await restored(other, read(document))
    assert (await facts(other), epochs(await whole(other))) == (WANTED, [4, 2, 1])


async def test_an_empty_container_gets_all_of_it(container: LeaseContainer) -> None:
    assert await restored(container, read(written(SAVED))) == [Change.CREATE] * 3
    assert (await facts(container), epochs(await whole(container))) == (WANTED, [4, 2, 1])
    assert await restored(container, SAVED) == [Change.KEEP] * 3


async def test_a_fleet_goes_back_to_before_a_range_was_split(
    container: LeaseContainer,
) -> None:
    await filled(
        container,
        [
            lease("r0", "9", ended=True, epoch=2),
            lease("r1", "20", parents=("r0",), epoch=5),
            lease("r2", "30", parents=("r0",), epoch=5),
            lease("r9", "8", epoch=3),
        ],
    )
    before = [lease("r0", "3"), lease("r9", "7", paused="bad data")]
    changes = await restored(container, before)
    assert changes == [Change.MOVE, Change.MOVE, Change.DELETE, Change.DELETE]
    assert await facts(container) == {"r0": ("3", False, None), "r9": ("7", False, "bad data")}
    assert epochs(await whole(container)) == [3, 4], "an epoch never goes down"
    # What the range goes on in starts at its beginning again, not where it was before.
    await container.create(lease("r1", "0", parents=("r0",), epoch=0))
    assert (await facts(container))["r1"] == ("0", False, None)


async def test_a_former_owner_writes_nothing_after_it(container: LeaseContainer) -> None:
    await filled(container, [lease("r0", "9")])
    (stored,) = await whole(container)
    owned = await container.acquire(stored.taken_by(A, A1))
    await restored(container, [lease("r0", "3")])
    with pytest.raises(LeaseConflict):
        await container.checkpoint(owned.advanced_to(Continuation("11")))
    with pytest.raises(LeaseConflict):
        await container.replace(owned.renewed())
    assert (await facts(container))["r0"] == ("3", False, None)
    assert [x.owner for x in await container.list()] == [None]


async def test_the_feed_that_positions_are_about_is_kept(container: LeaseContainer) -> None:
    assert isinstance(container, KeepsFeedIdentity)
    await restored(container, SAVED)
    await container.keep_feed_identity("orders")
    assert await container.feed_identity() == "orders"
