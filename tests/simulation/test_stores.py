"""The stores of the simulation keep the contract, and break as real ones do."""

import sqlite3
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from random import Random

import pytest
import pytest_asyncio

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.errors import CheckpointMissing, ContainerUnavailable, LeaseConflict
from changefeed.leases.lease import HostName, Incarnation, Lease

from .cosmos_endpoint import CosmosStores
from .network import Weather
from .scout import Scout
from .sources import CosmosSource
from .sqlite_file import SqliteStores
from .stores import MemoryStores, Stores, Surroundings

KINDS: Mapping[str, type[MemoryStores] | type[SqliteStores] | type[CosmosStores]] = {
    "memory": MemoryStores,
    "sqlite": SqliteStores,
    "cosmos": CosmosStores,
}
R1 = RangeId("1")
NEW = Lease(range=FeedRange(id=R1, low="", high="7F"), continuation=Continuation('"0"'))


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
def calls() -> list[tuple[str, str]]:
    return []


def around(weather: Weather, calls: list[tuple[str, str]]) -> Surroundings:
    return Surroundings(
        weather=weather,
        random=Random(1),
        checker=Scout(CosmosSource(Random(1)), strict=True),
        created=lambda process, found: calls.append((process, f"new {found.id}")),
        is_down=lambda _: False,
        called=lambda process, name: calls.append((process, name)),
    )


@pytest_asyncio.fixture(params=[*KINDS])
async def stores(
    request: pytest.FixtureRequest, weather: Weather, calls: list[tuple[str, str]]
) -> AsyncIterator[Stores]:
    stores = KINDS[request.param](around(weather, calls))
    yield stores
    stores.close()


async def test_of_two_processes_one_wins_a_lease(
    stores: Stores, calls: list[tuple[str, str]]
) -> None:
    one, other = stores.connect("a/1"), stores.connect("b/1")
    await one.create(NEW)
    listed = (await one.list())[0], (await other.list())[0]
    await one.acquire(listed[0].taken_by(HostName("a"), Incarnation("a/1")))
    with pytest.raises(LeaseConflict):
        await other.acquire(listed[1].taken_by(HostName("b"), Incarnation("b/1")))
    assert [(x.owner, x.epoch) for x in await stores.records.list()] == [("a", 1)]
    assert ("a/1", "new 1") in calls
    await one.delete((await one.list())[0])
    assert await other.read(R1) is None


@pytest.mark.parametrize("lost", [False, True])
async def test_what_failed_was_written_or_was_not_and_nobody_is_told(
    stores: Stores, weather: Weather, *, lost: bool
) -> None:
    other = stores.connect("b/1")
    await other.create(
        Lease(range=replace(NEW.range, id=RangeId("2")), continuation=NEW.continuation)
    )
    await other.list()
    weather.calls = frozenset({"create"})
    if lost:
        weather.fail_after = 1.0
    else:
        weather.fail_before = 1.0
    with pytest.raises(ContainerUnavailable):
        await stores.connect("a/1").create(NEW)
    assert len(await stores.records.list()) == 1 + lost


async def test_a_write_that_the_client_repeats_is_known_as_ones_own(weather: Weather) -> None:
    container = CosmosStores(around(weather, [])).connect("a/1")
    weather.repeat = 1.0
    created = await container.create(NEW)
    taken = await container.acquire(created.taken_by(HostName("a"), Incarnation("a/1")))
    assert (taken.owner, taken.epoch) == ("a", 1)


async def test_what_a_part_goes_on_in_is_created_while_the_part_is_still_read(
    weather: Weather,
) -> None:
    container = CosmosStores(around(weather, [])).connect("a/1")
    part = FeedRange(id=RangeId("3F-FF"), low="3F", high="FF")
    await container.create(Lease(range=part, continuation=Continuation('"1"')))
    await container.list()
    half = FeedRange(id=RangeId("3F-7F"), low="3F", high="7F", parents=(part.id,))
    await container.create(Lease(range=half, continuation=Continuation('"1"')))
    assert len(await container.list()) == 2


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("ends_transaction", [False, True])
@pytest.mark.parametrize("statements_left", range(8))
async def test_a_transaction_that_breaks_off_is_done_whole_or_not_at_all(
    weather: Weather, statements_left: int, *, ends_transaction: bool, after_commit: bool
) -> None:
    stores = SqliteStores(around(weather, []))
    container = stores.connect("a/1")
    broken = stores.connection("a/1")
    broken.error = sqlite3.OperationalError("disk I/O error")
    broken.error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    broken.statements_left = statements_left
    broken.ends_transaction, broken.after_commit = ends_transaction, after_commit
    try:
        await container.create(NEW)
    except ContainerUnavailable:
        assert len(await stores.records.list()) == after_commit
        await container.create(NEW)  # the next transaction finds none open
    else:
        assert not after_commit
    assert len(await stores.records.list()) == 1
    stores.close()


async def test_ownership_is_forgotten_and_checkpoints_are_kept() -> None:
    stores = MemoryStores(replace(around(Weather(), []), random=Random(0)))
    assert stores.checkpoints_are_apart
    container = stores.connect("a/1")
    lease = await container.create(NEW)
    taken = await container.acquire(lease.taken_by(HostName("a"), Incarnation("a/1")))
    await container.checkpoint(taken.advanced_to(Continuation('"7"')))
    stores.forget_ownership()
    assert await container.read(R1) is None
    again = await container.create(NEW)
    assert (again.owner, again.epoch, again.continuation) == (None, 1, '"7"')


async def test_a_lost_checkpoint_is_restored_as_it_was_unless_there_is_another() -> None:
    stores = MemoryStores(replace(around(Weather(), []), random=Random(0)))
    container = stores.connect("a/1")
    created = await container.create(NEW)
    lost = await stores.lose_checkpoint(R1)
    assert lost is not None
    with pytest.raises(CheckpointMissing):
        await container.read(R1)
    await stores.restore_checkpoint(lost)
    found = await container.read(R1)
    assert found is not None
    assert found.continuation == created.continuation
    taken = await container.acquire(found.taken_by(HostName("a"), Incarnation("a/1")))
    await container.checkpoint(taken.advanced_to(Continuation('"7"')))
    await stores.restore_checkpoint(lost)
    found = await container.read(R1)
    assert found is not None
    assert found.continuation == '"7"'
