"""What ``changefeed doctor`` finds out about a lease container in Cosmos DB."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient, DatabaseProxy

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.fleet.coverage import check_coverage
from changefeed.leases.addresses import check_leases, open_container
from changefeed.leases.cosmos import diagnostics as checking
from changefeed.runtime.diagnostics import Diagnostic, Severity
from changefeed.runtime.errors import StoreMissing
from changefeed.runtime.secret import Secret
from cosmos_emulator import DEVELOPMENT_KEY
from cosmos_emulator.testing import running
from tests.support import make
from tests.support.cosmos_feeds import CosmosWorld, cosmos_world
from tests.support.dotnet_processor import DotNetHost
from tests.support.sqlite_leases import SqliteLeases

RANGE = {"id": "0", "minInclusive": "", "maxExclusive": "FF"}


class Place:
    def __init__(self, url: str, database: DatabaseProxy) -> None:
        self.address = f"cosmos+{url}d/leases"
        self.database = database

    async def container(self, key: str = "/id", **options: Any) -> Any:
        return await self.database.create_container("leases", PartitionKey(key), **options)

    async def found(self, options: str = "", key: str | None = None) -> dict[str, Diagnostic]:
        """Return the most severe diagnostic about each thing."""
        means = OpenOptions(cosmos=CosmosAccess(key=Secret.of(key) if key else None))
        found: dict[str, Diagnostic] = {}
        async for x in check_leases(self.address + options, means, feed=""):
            if x.severity is not Severity.FINE or x.about not in found:
                found[x.about] = x
        return found


def wrong(found: dict[str, Diagnostic]) -> dict[str, Severity]:
    return {x.about: x.severity for x in found.values() if x.severity is not Severity.FINE}


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    async with running() as url, CosmosClient(url, DEVELOPMENT_KEY) as client:
        yield Place(url, await client.create_database("d"))


async def test_a_container_that_we_made_has_nothing_wrong_with_it(place: Place) -> None:
    async with open_container(place.address, OpenOptions(create=True)) as leases:
        feed_range = FeedRange(id=RangeId("0"), high="FF")
        await leases.create(make.lease(feed_range, at='"0"'))
        found = await place.found()
        assert wrong(found) == {}
        assert found["prefix"].text == "leases under 'changefeed': 1"
        assert len(await leases.list()) == 1
    items = place.database.get_container_client("leases").query_items("SELECT c.id FROM c")
    assert not [x["id"] async for x in items if ".check." in x["id"]]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ({"key": "/pk"}, {"leases": Severity.PROBLEM}),
        ({}, {"time to live": Severity.WARNING, "indexing": Severity.WARNING}),
        (
            {"default_ttl": 3600},  # leases would expire
            {"time to live": Severity.PROBLEM, "indexing": Severity.WARNING},
        ),
    ],
)
async def test_a_container_that_is_not_as_leases_need_it_is_told_of(
    place: Place, made: dict[str, Any], found: dict[str, Severity]
) -> None:
    await place.container(**made)
    said = wrong(await place.found())
    assert {x: y for x, y in said.items() if x in found} == found


async def test_a_container_that_is_not_there_is_missing(place: Place) -> None:
    with pytest.raises(StoreMissing, match="no such database or container"):
        await place.found()


async def test_a_wrong_key_is_told_without_the_key(place: Place) -> None:
    secret = DEVELOPMENT_KEY[:-6] + "AAAA=="
    found = await place.found(key=secret)
    assert wrong(found) == {"leases": Severity.PROBLEM}
    assert secret not in repr(found)


async def test_leases_under_other_prefixes_are_named(place: Place) -> None:
    dotnet = DotNetHost(await place.container(default_ttl=-1), "theirs", "net-1")
    await dotnet.initialize([RANGE])
    found = await place.found()
    assert found["prefix"].severity is Severity.WARNING
    assert "'theirs'" in found["prefix"].text
    lease = await dotnet.acquire(await dotnet.read("0"))
    await dotnet.checkpoint(lease, '"5"')
    found = await place.found("?prefix=theirs")
    assert "net-1" in found["other processors"].text
    assert wrong(await place.found("?prefix=theirs&mode=all-versions"))["leases"] is (
        Severity.PROBLEM
    )


@pytest.mark.parametrize(
    ("difference", "severity"),
    [(0, Severity.FINE), (-60, Severity.WARNING), (400, Severity.PROBLEM)],
)
def test_clocks_that_differ_are_told(difference: float, severity: Severity) -> None:
    headers = {"Date": "Sat, 01 Aug 2026 10:00:00 GMT"}
    (found,) = checking.clock_findings(headers, 1785578400.5 + difference)
    assert found.severity is severity
    assert list(checking.clock_findings({}, 0.0)) == []


class Fleet:
    """Leases in a file over a Cosmos DB container, as ``doctor`` looks at them."""

    def __init__(self, world: CosmosWorld, file: Path) -> None:
        self.world = world
        self.file = file

    async def lease(self, range_id: str, low: str, high: str, position: str = '"0"') -> None:
        feed_range = FeedRange(id=RangeId(range_id), low=low, high=high)
        async with SqliteLeases(self.file) as leases:
            await leases.create(make.lease(feed_range, at=position, epoch=1))

    async def found(self) -> list[tuple[str, str]]:
        async with SqliteLeases(self.file) as leases, self.world.feed() as feed:
            found = [x async for x in check_coverage(feed, leases, start="beginning")]
        return [(str(x.severity), x.text) for x in found]


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with cosmos_world() as world:
        yield Fleet(world, tmp_path / "leases.db")


async def test_parts_of_a_merged_range_that_is_split_elsewhere_are_fine_and_followed(
    fleet: Fleet,
) -> None:
    low, high = await fleet.world.by_hand.split(range="0")
    await fleet.lease(low["id"], low["low"], low["high"])
    await fleet.lease(high["id"], high["low"], high["high"])
    merged = await fleet.world.by_hand.merge(low["id"], high["id"])
    await fleet.world.by_hand.split(range=merged["id"], at="10")
    found = await fleet.found()
    assert [x for x, _ in found] == ["ok", "ok"]
    assert f"it goes on in 4, 10-{low['high']}" in found[0][1]
    assert f"it goes on in {high['low']}-FF" in found[1][1]


async def test_a_merge_without_the_bounds_of_its_leases_is_a_problem_with_advice(
    fleet: Fleet,
) -> None:
    low, high = await fleet.world.by_hand.split(range="0")
    await fleet.lease(low["id"], "", "")
    await fleet.lease(high["id"], "", "")
    await fleet.world.by_hand.merge(low["id"], high["id"])
    found = await fleet.found()
    assert [x for x, _ in found] == ["problem", "problem"]
    assert "Reset the lease of this range" in found[0][1]
