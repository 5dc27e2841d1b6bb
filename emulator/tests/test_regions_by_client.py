"""Azure's own client for Python: in which region it reads, and how it gets past a failover."""

from collections.abc import Iterator

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.aio import CosmosClient as AsyncClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from cosmos_emulator import DEVELOPMENT_KEY, EmulatorSettings
from cosmos_emulator.settings import RegionSettings
from cosmos_emulator.testing import Account, account_in_thread

WEST, EAST = "West US", "East US"
FOR_EVER = 600.0  # seconds: as long as a test takes
REGIONS = (RegionSettings(name=WEST), RegionSettings(name=EAST, lag=FOR_EVER))


@pytest.fixture
def account() -> Iterator[Account]:
    with account_in_thread(EmulatorSettings(port=0, regions=REGIONS)) as made:
        database = CosmosClient(made.url, DEVELOPMENT_KEY).create_database("d")
        database.create_container("c", PartitionKey("/pk"))
        made.control("DELETE", "requests")
        yield made


def reading_in_the_east(account: Account, **options: str) -> ContainerProxy:
    client = CosmosClient(
        account.url, DEVELOPMENT_KEY, preferred_locations=[EAST, WEST], **options
    )
    return client.get_database_client("d").get_container_client("c")


def seen(container: ContainerProxy) -> list[str]:
    return [x["id"] for x in container.query_items_change_feed(start_time="Beginning")]


def test_a_session_reads_its_writes_in_the_region_that_writes_and_others_wait(
    account: Account,
) -> None:
    items = reading_in_the_east(account)
    items.create_item({"id": "1", "pk": "p"})
    assert items.read_item("1", "p")["id"] == "1"
    counts = account.control("GET", "requests")
    assert counts["read_item"] == {"404": 1, "200": 1}  # in the east, then in the west
    other = reading_in_the_east(account, consistency_level="Eventual")
    assert seen(other) == []
    with pytest.raises(CosmosResourceNotFoundError):
        other.read_item("1", "p")
    assert other.read_item("1", "p", excluded_locations=[EAST])["id"] == "1"
    account.region(EAST, lag=0.0)
    assert seen(other) == ["1"]


def test_a_client_finds_the_region_that_writes_now(account: Account) -> None:
    items = reading_in_the_east(account)
    items.create_item({"id": "1", "pk": "p"})
    account.region(EAST, writes=True)
    items.create_item({"id": "2", "pk": "p"})
    counts = account.control("GET", "requests")["create_item"]
    assert (counts["201"], counts["403"] > 0) == (2, True)
    account.region(WEST, down=True)
    fresh = reading_in_the_east(account)
    fresh.create_item({"id": "3", "pk": "p"})
    assert seen(fresh) == ["1", "2", "3"]


def test_a_client_reads_elsewhere_while_its_region_is_down(account: Account) -> None:
    items = reading_in_the_east(account)
    items.create_item({"id": "1", "pk": "p"})
    account.region(EAST, down=True)
    assert items.read_item("1", "p")["id"] == "1"
    assert seen(items) == ["1"]


async def test_the_async_client_does_the_same(account: Account) -> None:
    where = [EAST, WEST]
    async with AsyncClient(account.url, DEVELOPMENT_KEY, preferred_locations=where) as client:
        items = client.get_database_client("d").get_container_client("c")
        await items.create_item({"id": "1", "pk": "p"})
        assert (await items.read_item("1", "p"))["id"] == "1"
        assert account.control("GET", "requests")["read_item"] == {"404": 1, "200": 1}
        account.region(EAST, writes=True)
        await items.create_item({"id": "2", "pk": "p"})
        account.region(WEST, down=True)
        feed = items.query_items_change_feed(start_time="Beginning")
        assert [x["id"] async for x in feed] == ["1", "2"]
