"""What both modes of the Cosmos DB feed tell, where they start, and how far they lag."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.cosmos.address import CosmosAccess, CosmosAddress
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.pipeline.source.addresses import identity_at
from cosmos_emulator import DEVELOPMENT_KEY
from tests.support.cosmos_feeds import CosmosWorld

ZERO = RangeId("0")


@pytest.mark.parametrize(
    ("place", "advice"),
    [
        ("d/nowhere", "is not there: check database and container"),
        ("nowhere/c", "is not there"),
        (
            "d/c?mode=every",
            "unknown mode 'every' of a feed. Known modes: latest-version, all-versions",
        ),
        ("d/c?key=abc", "CHANGEFEED_COSMOS__KEY"),
    ],
)
async def test_an_address_that_leads_nowhere_is_refused_with_advice(
    world: CosmosWorld, place: str, advice: str
) -> None:
    address = world.url.replace("http://", "cosmos+http://") + place
    with pytest.raises(FeedRefused, match=advice):
        async with open_feed(address):
            pass


async def test_a_container_is_another_feed_in_another_mode(
    world: CosmosWorld,
) -> None:
    address = world.url.replace("http://", "cosmos+http://") + "d/c"
    every = f"{address}?mode=all-versions"
    async with open_feed(address) as latest, open_feed(every) as versions:
        assert versions.identity == f"{latest.identity}?mode=all-versions"
        on_spark = [await asyncio.to_thread(identity_at, x) for x in (address, every)]
        assert on_spark == [latest.identity, versions.identity]


async def test_all_versions_start_from_now_and_say_so(world: CosmosWorld) -> None:
    async with world.feed("all-versions") as feed:
        for start in ("beginning", datetime.now(UTC)):
            with pytest.raises(FeedRefused, match="start from now, or with a snapshot"):
                await feed.start(FeedRange(id=ZERO), start)


async def test_a_time_starts_with_its_whole_second(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    await world.put("old")
    await asyncio.sleep(1.1)
    since = datetime.now(UTC)
    await world.put("new")
    cases: list[tuple[datetime, list[str]]] = [
        (since, ["new"]),
        (since.replace(microsecond=999_999), ["new"]),
        (since - timedelta(minutes=1), ["old", "new"]),
        (since + timedelta(minutes=1), []),
        (datetime(1960, 1, 1, tzinfo=UTC), ["old", "new"]),
    ]
    for start, expected in cases:
        settled = await feed.start(FeedRange(id=ZERO), start)
        page = await feed.read(FeedRange(id=ZERO), settled, 10)
        assert [x.id for x in page.changes] == expected
    settled = await feed.start(FeedRange(id=ZERO), since + timedelta(minutes=1))
    await world.put("newer")
    assert [x.id for x in (await feed.read(FeedRange(id=ZERO), settled, 10)).changes] == [
        "newer"
    ]


async def test_a_nested_partition_key_is_found(world: CosmosWorld) -> None:
    async with CosmosClient(world.url, DEVELOPMENT_KEY) as client:
        database = client.get_database_client("d")
        items = await database.create_container("deep", PartitionKey("/owner/name"))
        await items.create_item({"id": "a", "owner": {"name": "Ann"}})
    address = CosmosAddress(endpoint=world.url, database="d", container="deep")
    async with open_cosmos(address, CosmosAccess()) as feed:
        (change,) = (
            await feed.read(
                FeedRange(id=ZERO), await feed.start(FeedRange(id=ZERO), "beginning"), 9
            )
        ).changes
    assert change.key == "Ann"
