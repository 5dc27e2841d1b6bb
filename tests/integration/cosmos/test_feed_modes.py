"""What both modes of the Cosmos DB feed tell, where they start, and how far they lag."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backlog import lag_of
from changefeed.feeds.cosmos.address import CosmosAccess, CosmosAddress
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Change, FeedRange, Operation, RangeId
from changefeed.pipeline.source.addresses import identity_at
from cosmos_emulator import DEVELOPMENT_KEY
from tests.support.cosmos_feeds import CosmosWorld

ZERO = RangeId("0")


async def test_a_feed_is_opened_by_its_address_and_listed_by_its_physical_ranges(
    world: CosmosWorld,
) -> None:
    address = world.url.replace("http://", "cosmos+http://") + "d/c"
    async with open_feed(address) as feed:
        (only,) = await feed.ranges()
    assert (only.id, only.low, only.high, only.parents) == ("0", "", "FF", ())


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


async def test_an_item_is_told_as_it_is_stored_with_its_time_and_its_place(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    begun = int(time.time())
    await world.put("a", "é", n=1)
    await world.put("b", 7)
    first, second = (
        await feed.read(
            FeedRange(id=ZERO), await feed.start(FeedRange(id=ZERO), "beginning"), 10
        )
    ).changes
    assert (first.key, first.id, first.operation) == ("é", "a", Operation.REPLACE)
    assert (second.key, second.id) == ("=7", "b")
    stored = msgspec.json.decode(first.body)
    assert (stored["n"], stored["_lsn"], stored["pk"]) == (1, 1, "é")
    assert begun <= first.committed_us / 1_000_000 <= time.time()
    assert first.committed_us == stored["_ts"] * 1_000_000


async def test_only_the_latest_version_is_told_and_no_delete(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    for n in range(3):
        await world.put("a", n=n)
    await world.put("b")
    await world.remove("b")
    page = await feed.read(
        FeedRange(id=ZERO), await feed.start(FeedRange(id=ZERO), "beginning"), 10
    )
    assert [(x.id, x.value()["n"]) for x in page.changes] == [("a", 2)]


async def test_a_container_is_another_feed_in_another_mode(
    world: CosmosWorld,
) -> None:
    address = world.url.replace("http://", "cosmos+http://") + "d/c"
    every = f"{address}?mode=all-versions"
    async with open_feed(address) as latest, open_feed(every) as versions:
        assert versions.identity == f"{latest.identity}?mode=all-versions"
        on_spark = [await asyncio.to_thread(identity_at, x) for x in (address, every)]
        assert on_spark == [latest.identity, versions.identity]


async def test_all_versions_and_deletes_are_told_with_the_images_before_them(
    world: CosmosWorld,
) -> None:
    async with world.feed("all-versions") as feed:
        await world.put("a", n=0)
        now = await feed.start(FeedRange(id=ZERO), "now")
        await world.put("a", n=1)
        await world.remove("a")
        await world.put("a", n=2)
        first = await feed.read(FeedRange(id=ZERO), now, 2)
        second = await feed.read(FeedRange(id=ZERO), first.position, 2)
        assert await lag_of(feed, FeedRange(id=ZERO), now) == 3

    def told(x: Change) -> tuple[Operation, int | None, int | None]:
        before = msgspec.json.decode(x.previous)["n"] if x.previous else None
        return x.operation, x.value() and x.value()["n"], before

    assert [told(x) for x in [*first.changes, *second.changes]] == [
        (Operation.REPLACE, 1, 0),
        (Operation.DELETE, None, 1),
        (Operation.INSERT, 2, None),
    ]
    assert {(x.key, x.id) for x in first.changes} == {("p", "a")}


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


async def test_a_reader_cannot_stop_inside_a_transaction(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    async with CosmosClient(world.url, DEVELOPMENT_KEY) as client:
        items = client.get_database_client("d").get_container_client("c")
        await items.create_item({"id": "a", "pk": "p"})
        batch = [("create", ({"id": x, "pk": "p"},)) for x in "bcd"]
        await items.execute_item_batch(batch, "p")
        await items.create_item({"id": "e", "pk": "p"})
    page = await feed.read(
        FeedRange(id=ZERO), await feed.start(FeedRange(id=ZERO), "beginning"), 2
    )
    a, b, c, d = page.changes
    assert a.sequence < b.sequence < c.sequence < d.sequence
    again = [
        await feed.read(FeedRange(id=ZERO), feed.position_after(x), 9) for x in (a, b, c, d)
    ]
    assert ["".join(x.id for x in y.changes) for y in again] == ["bcde", "bcde", "bcde", "e"]
    assert feed.position_after(d) == page.position == '"2"'


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
