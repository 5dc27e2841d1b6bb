"""Unique keys, hierarchical keys, deletes by key, bulk, and what throughput decides."""

from typing import Any

import msgspec
import pytest
from azure.cosmos import PartitionKey, ThroughputProperties
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from emulator.tests.by_hand import DOCS, Hand, Reply, container

UNIQUE = {"uniqueKeys": [{"paths": ["/email"]}, {"paths": ["/a", "/b/c"]}]}


async def refusal(doing: Any) -> int:
    with pytest.raises(CosmosHttpResponseError) as refused:
        await doing
    assert refused.value.status_code is not None
    return refused.value.status_code


def person(name: str, email: str | None, pk: str = "p") -> dict[str, Any]:
    return {"id": name, "pk": pk, "email": email, "a": name, "b": {"c": 1}}


async def test_a_unique_value_belongs_to_one_item_of_a_partition_key(
    client: CosmosClient,
) -> None:
    people = await container(client, "people", unique_key_policy=UNIQUE)
    await people.create_item(person("ann", "a@x"))
    assert await refusal(people.create_item(person("bob", "a@x"))) == 409
    await people.create_item(person("bob", "a@x", "q"))
    await people.create_item(person("bob", "b@x"))
    assert await refusal(people.upsert_item(person("bob", "a@x"))) == 409
    assert (await people.read_item("bob", "p"))["email"] == "b@x"
    await people.upsert_item(person("ann", "new@x"))
    await people.upsert_item(person("bob", "a@x"))
    await people.delete_item("bob", "p")
    await people.create_item(person("cid", "a@x"))


async def test_an_item_without_a_unique_value_has_null_there(client: CosmosClient) -> None:
    people = await container(client, "people", unique_key_policy=UNIQUE)
    await people.create_item({"id": "ann", "pk": "p", "a": 1})
    assert await refusal(people.create_item({"id": "bob", "pk": "p", "a": 2})) == 409


async def nested(client: CosmosClient, ranges: int = 2) -> ContainerProxy:
    database = await client.create_database_if_not_exists("d")
    key = PartitionKey(["/tenant", "/user"], kind="MultiHash")
    made = await database.create_container("nested", key, offer_throughput=ranges * 6_000)
    for i in range(12):
        await made.create_item({"id": f"i{i}", "tenant": f"t{i % 2}", "user": i % 3})
    return made


async def test_items_have_every_value_of_a_hierarchical_key(client: CosmosClient) -> None:
    items = await nested(client)
    assert (await items.read_item("i5", ["t1", 2]))["user"] == 2
    assert await refusal(items.read_item("i5", ["t1", 1])) == 404
    assert await refusal(items.read_item("i5", ["t1"])) == 400


async def test_a_prefix_of_a_hierarchical_key_finds_what_begins_with_it(
    client: CosmosClient, by_hand: Hand
) -> None:
    items = await nested(client)
    found = [x["id"] async for x in items.query_items("SELECT * FROM c", partition_key=["t1"])]
    assert sorted(found) == ["i1", "i11", "i3", "i5", "i7", "i9"]
    header = {
        "x-ms-documentdb-partitionkey": '["t0"]',
        "x-ms-documentdb-isquery": "True",
        "Content-Type": "application/query+json",
    }
    path, body = "/dbs/d/colls/nested/docs", {"query": "SELECT * FROM c"}
    got = await by_hand.send("POST", path, body, header)
    assert sorted(got.ids) == ["i0", "i10", "i2", "i4", "i6", "i8"]


async def test_deleting_by_key_leaves_other_keys_alone(items: ContainerProxy) -> None:
    for i in range(5):
        await items.create_item({"id": f"i{i}", "pk": "p" if i < 3 else "q"})
    await items.delete_all_items_by_partition_key("p")
    assert [x["id"] async for x in items.read_all_items()] == ["i3", "i4"]
    await items.create_item({"id": "i0", "pk": "p"})


async def bulk(
    by_hand: Hand, operations: list[Any], range_: str = "0", goes_on: str = "True"
) -> Reply:
    headers = {
        "x-ms-cosmos-is-batch-request": "True",
        "x-ms-cosmos-batch-atomic": "False",
        "x-ms-cosmos-batch-continue-on-error": goes_on,
        "x-ms-documentdb-partitionkeyrangeid": range_,
    }
    return await by_hand.send("POST", DOCS, operations, headers)


def created(name: str, key: str) -> dict[str, Any]:
    given = msgspec.json.encode([key]).decode()
    body = {"id": name, "pk": key}
    return {"operationType": "Create", "partitionKey": given, "resourceBody": body}


async def test_in_bulk_each_operation_stands_for_itself(by_hand: Hand) -> None:
    wrong = {"operationType": "Create", "resourceBody": {"id": "x", "pk": "p"}}
    done = await bulk(by_hand, [created("a", "p"), created("a", "p"), wrong, created("b", "q")])
    assert done.status == 207
    assert [x["statusCode"] for x in done.body] == [201, 409, 400, 201]
    assert done.body[0]["resourceBody"]["id"] == "a"
    assert (await by_hand.query("SELECT * FROM c")).ids == ["a", "b"]
    assert (await by_hand.feed()).body["Documents"][1]["_lsn"] == 2


async def test_in_bulk_nothing_is_done_behind_an_error_if_the_client_says_so(
    by_hand: Hand,
) -> None:
    several = [created("a", "p"), created("a", "p"), created("b", "q")]
    done = await bulk(by_hand, several, goes_on="False")
    assert [x["statusCode"] for x in done.body] == [201, 409, 424]
    assert (await by_hand.query("SELECT * FROM c")).ids == ["a"]


async def test_in_bulk_a_key_of_another_range_is_gone_and_so_is_a_range_that_split(
    by_hand: Hand,
) -> None:
    assert (await bulk(by_hand, [created("a", "p")])).status == 200
    await by_hand.split()
    assert (await bulk(by_hand, [created("b", "p")])).substatus == 1002
    halves = [await bulk(by_hand, [created("c", "q")], x) for x in ("1", "2")]
    lines = [x.body[0] for x in halves]
    assert sorted(x["statusCode"] for x in lines) == [201, 410]
    assert {x.get("subStatusCode", 1002) for x in lines} == {1002}


async def test_autoscale_counts_by_its_highest_throughput(client: CosmosClient) -> None:
    scaled = await container(
        client,
        "scaled",
        offer_throughput=ThroughputProperties(
            auto_scale_max_throughput=30_000, auto_scale_increment_percent=0
        ),
    )
    found = await scaled.get_throughput()
    assert found.auto_scale_max_throughput == 30_000
    assert found.auto_scale_increment_percent == 0
    grows = ThroughputProperties(
        auto_scale_max_throughput=30_000, auto_scale_increment_percent=10
    )
    await scaled.replace_throughput(grows)
    assert (await scaled.get_throughput()).auto_scale_increment_percent == 10
    too_much = ThroughputProperties(
        auto_scale_max_throughput=30_000, auto_scale_increment_percent=101
    )
    assert await refusal(scaled.replace_throughput(too_much)) == 400
    assert len([x async for x in scaled.read_feed_ranges()]) == 5
    wanted = ThroughputProperties(auto_scale_max_throughput=1500)
    assert await refusal(scaled.replace_throughput(wanted)) == 400


async def test_an_offer_changes_its_kind_only_when_it_is_migrated(by_hand: Hand) -> None:
    (offer,) = (await by_hand.send("GET", "/offers")).body["Offers"]
    path = f"/offers/{offer['id']}"
    scaled = offer | {"content": {"offerAutopilotSettings": {"maxThroughput": 4000}}}
    assert (await by_hand.send("PUT", path, scaled)).status == 400
    migrate = {"x-ms-cosmos-migrate-offer-to-autopilot": "true"}
    done = await by_hand.send("PUT", path, offer, migrate)
    assert done.body["content"]["offerAutopilotSettings"] == {"maxThroughput": 1000}
    assert done.body["content"]["offerThroughput"] == 100
    assert done.headers["x-ms-cosmos-min-throughput"] == "1000"
    back = {"x-ms-cosmos-migrate-offer-to-manual-throughput": "true"}
    done = await by_hand.send("PUT", path, offer, back)
    assert "offerAutopilotSettings" not in done.body["content"]
    assert (await by_hand.send("GET", path)).body == done.body
    assert (await by_hand.send("GET", "/offers/none")).status == 404


@pytest.mark.parametrize(
    "header",
    [
        {"x-ms-offer-throughput": "300"},
        {"x-ms-offer-throughput": "450"},
        {"x-ms-offer-throughput": "many"},
        {"x-ms-cosmos-offer-autopilot-settings": "5"},
        {"x-ms-cosmos-offer-autopilot-settings": '{"maxThroughput": 500}'},
        {"x-ms-cosmos-offer-autopilot-settings": '{"maxThroughput": "4000"}'},
        {
            "x-ms-offer-throughput": "400",
            "x-ms-cosmos-offer-autopilot-settings": '{"maxThroughput": 4000}',
        },
    ],
)
async def test_a_throughput_that_no_account_gives_is_refused(
    by_hand: Hand, header: dict[str, str]
) -> None:
    body = {"id": "odd", "partitionKey": {"paths": ["/pk"]}}
    assert (await by_hand.send("POST", "/dbs/d/colls", body, header)).status == 400
    assert len((await by_hand.send("GET", "/offers")).body["Offers"]) == 1
