"""Databases, containers and items, through the real client and by hand."""

import asyncio
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from tests.integration.emulator.running import DOCS, Hand

pytestmark = pytest.mark.real_time
WRONG_KEY = "bm90IHRoZSBrZXk="


async def test_an_item_can_be_created_read_replaced_patched_and_deleted(
    items: ContainerProxy,
) -> None:
    made = await items.create_item({"id": "1", "pk": "p", "n": 1})
    assert (await items.read_item("1", "p"))["_etag"] == made["_etag"]
    replaced = await items.replace_item("1", {"id": "1", "pk": "p", "n": 2})
    assert replaced["n"] == 2
    assert replaced["_rid"] == made["_rid"]
    assert replaced["_etag"] != made["_etag"]
    operations: list[dict[str, Any]] = [
        {"op": "incr", "path": "/n", "value": 5},
        {"op": "add", "path": "/tags", "value": ["x"]},
        {"op": "add", "path": "/tags/-", "value": "y"},
        {"op": "set", "path": "/deep", "value": {"a": 1}},
        {"op": "move", "from": "/deep/a", "path": "/b"},
        {"op": "remove", "path": "/deep"},
    ]
    patched = await items.patch_item("1", "p", operations)
    assert {k: patched[k] for k in ("n", "tags", "b")} == {"n": 7, "tags": ["x", "y"], "b": 1}
    assert "deep" not in patched
    await items.delete_item("1", "p")
    with pytest.raises(CosmosResourceNotFoundError):
        await items.read_item("1", "p")


async def test_an_id_exists_once_in_each_partition_key(items: ContainerProxy) -> None:
    await items.create_item({"id": "1", "pk": "a"})
    await items.create_item({"id": "1", "pk": "b"})
    with pytest.raises(CosmosResourceExistsError):
        await items.create_item({"id": "1", "pk": "a"})
    assert (await items.upsert_item({"id": "1", "pk": "a", "n": 2}))["n"] == 2


async def test_of_thirty_contenders_with_one_etag_one_wins(items: ContainerProxy) -> None:
    lease = await items.create_item({"id": "lease", "pk": "lease", "owner": None})

    async def take(owner: int) -> int | None:
        try:
            await items.replace_item(
                "lease",
                {"id": "lease", "pk": "lease", "owner": owner},
                etag=lease["_etag"],
                match_condition=MatchConditions.IfNotModified,
            )
        except CosmosAccessConditionFailedError:
            return None
        return owner

    winners = [x for x in await asyncio.gather(*map(take, range(30))) if x is not None]
    assert len(winners) == 1
    assert (await items.read_item("lease", "lease"))["owner"] == winners[0]


async def test_every_write_with_an_old_etag_is_refused(items: ContainerProxy) -> None:
    old = (await items.create_item({"id": "1", "pk": "p"}))["_etag"]
    await items.upsert_item({"id": "1", "pk": "p", "n": 2})
    unless = {"etag": old, "match_condition": MatchConditions.IfNotModified}
    with pytest.raises(CosmosAccessConditionFailedError):
        await items.upsert_item({"id": "1", "pk": "p", "n": 3}, **unless)
    with pytest.raises(CosmosAccessConditionFailedError):
        await items.patch_item("1", "p", [{"op": "set", "path": "/n", "value": 3}], **unless)
    with pytest.raises(CosmosAccessConditionFailedError):
        await items.delete_item("1", "p", **unless)
    assert (await items.read_item("1", "p"))["n"] == 2


async def test_an_unchanged_item_is_not_sent_again(by_hand: Hand) -> None:
    made = await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
    etag = made.headers["etag"]
    again = await by_hand.send("GET", DOCS + "/1", headers={"If-None-Match": etag}, key="p")
    assert (again.status, again.body, again.headers["etag"]) == (304, None, etag)
    unless_there = {"If-None-Match": "*", "x-ms-documentdb-is-upsert": "True"}
    refused = await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, unless_there, key="p")
    assert refused.status == 412


async def test_a_conditional_patch_changes_only_what_meets_its_condition(
    items: ContainerProxy,
) -> None:
    await items.create_item({"id": "1", "pk": "p", "state": "new"})
    done = [{"op": "set", "path": "/state", "value": "done"}]
    with pytest.raises(CosmosAccessConditionFailedError):
        await items.patch_item("1", "p", done, filter_predicate="FROM c WHERE c.state = 'old'")
    await items.patch_item("1", "p", done, filter_predicate="FROM c WHERE c.state = 'new'")
    assert (await items.read_item("1", "p"))["state"] == "done"


@pytest.mark.parametrize(
    ("operation", "advice"),
    [
        ({"op": "set", "path": "/id", "value": "2"}, "/id cannot be patched"),
        ({"op": "set", "path": "/pk", "value": "q"}, "doesn't match"),
        ({"op": "set", "path": "/_etag", "value": "x"}, "/_etag cannot be patched"),
        ({"op": "replace", "path": "/none", "value": 1}, "nothing at /none"),
        ({"op": "incr", "path": "/pk", "value": 1}, "needs numbers"),
        ({"op": "twist", "path": "/pk"}, "is no patch operation"),
    ],
)
async def test_a_patch_that_cannot_be_applied_says_why(
    by_hand: Hand, operation: dict[str, object], advice: str
) -> None:
    await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
    got = await by_hand.send("PATCH", DOCS + "/1", {"operations": [operation]}, key="p")
    assert got.status == 400
    assert advice in got.body["message"]


async def test_a_batch_is_all_or_nothing_and_has_one_lsn(
    items: ContainerProxy, by_hand: Hand
) -> None:
    await items.create_item({"id": "0", "pk": "p"})
    with pytest.raises(CosmosBatchOperationError) as refused:
        await items.execute_item_batch(
            [("create", ({"id": "1", "pk": "p"},)), ("create", ({"id": "0", "pk": "p"},))], "p"
        )
    assert (refused.value.error_index, refused.value.status_code) == (1, 409)
    assert [x["id"] async for x in items.read_all_items()] == ["0"]
    done = await items.execute_item_batch(
        [
            ("create", ({"id": "1", "pk": "p"},)),
            ("upsert", ({"id": "2", "pk": "p"},)),
            ("replace", ("0", {"id": "0", "pk": "p", "n": 1})),
            ("patch", ("1", [{"op": "set", "path": "/n", "value": 2}])),
            ("read", ("1",)),
            ("delete", ("2",)),
        ],
        "p",
    )
    assert [x["statusCode"] for x in done] == [201, 201, 200, 200, 200, 204]
    assert done[4]["resourceBody"]["n"] == 2
    changes = (await by_hand.feed()).body["Documents"]
    assert [(x["id"], x["_lsn"]) for x in changes] == [("0", 2), ("1", 2)]


async def test_old_system_properties_that_a_client_sends_back_are_not_stored(
    items: ContainerProxy,
) -> None:
    made = await items.create_item({"id": "1", "pk": "p"})
    body = dict(made) | {"_lsn": 77, "_ts": 1, "_etag": "mine", "_own": "kept"}
    replaced = await items.replace_item("1", body)
    assert replaced["_own"] == "kept"
    assert "_lsn" not in replaced
    assert replaced["_etag"] not in {"mine", made["_etag"]}


@pytest.mark.parametrize(
    ("body", "key", "status", "substatus"),
    [
        ({"pk": "p"}, "p", 400, 0),
        ({"id": "", "pk": "p"}, "p", 400, 0),
        ({"id": "a/b", "pk": "p"}, "p", 400, 0),
        ({"id": 7, "pk": "p"}, "p", 400, 0),
        (["no object"], "p", 400, 0),
        ({"id": "1", "pk": "q"}, "p", 400, 1001),
        ({"id": "1", "pk": {"a": 1}}, "p", 400, 0),
        ({"id": "1", "pk": "p", "ttl": 0}, "p", 400, 0),
        ({"id": "1", "pk": "p", "text": "x" * 2_100_000}, "p", 413, 0),
        ({"id": "1", "pk": "p"}, None, 400, 0),
    ],
)
async def test_an_item_that_cannot_be_stored_is_refused(
    by_hand: Hand, body: object, key: str | None, status: int, substatus: int
) -> None:
    got = await by_hand.send("POST", DOCS, body, key=key)
    assert (got.status, got.substatus) == (status, substatus)
    assert got.body["message"].startswith('Message: {"Errors"')


async def test_the_wrong_key_is_refused_and_the_refusal_says_what_to_do(
    by_hand: Hand, url: str
) -> None:
    got = await by_hand.send("GET", "/dbs", secret=WRONG_KEY)
    assert got.status == 401
    assert "--key" in got.body["message"]
    stranger = CosmosClient(url, WRONG_KEY)
    with pytest.raises(CosmosHttpResponseError) as refused:
        await stranger.__aenter__()
    assert refused.value.status_code == 401
    await stranger.close()


async def test_a_signature_is_good_for_one_request_only(by_hand: Hand) -> None:
    header = {"Authorization": "type=aad&ver=1.0&sig=x"}
    assert (await by_hand.send("GET", "/dbs", headers=header)).status == 401
    header = {"x-ms-date": "Fri, 01 Jan 2021 00:00:00 GMT"}
    assert (await by_hand.send("GET", "/dbs", headers=header)).status == 401


async def test_what_is_missing_says_which_part_is_missing(by_hand: Hand) -> None:
    for path, substatus in (
        ("/dbs/none", 0),
        ("/dbs/none/colls/c", 1003),
        ("/dbs/d/colls/none", 0),
        ("/dbs/d/colls/none/docs/1", 1003),
        ("/dbs/d/colls/c/docs/1", 0),
    ):
        got = await by_hand.send("GET", path, key="p")
        assert (got.status, got.substatus) == (404, substatus), path
    assert (await by_hand.send("GET", "/nonsense/x")).status == 404
    assert (await by_hand.send("PUT", "/dbs/d")).status == 405
    sproc = await by_hand.send("POST", "/dbs/d/colls/c/sprocs", {})
    assert sproc.status == 400
    assert "A stored procedure is not supported" in sproc.body["message"]


async def test_databases_and_containers_are_listed_found_and_deleted(
    client: CosmosClient,
) -> None:
    database = await client.create_database("d")
    with pytest.raises(CosmosResourceExistsError):
        await client.create_database("d")
    await database.create_container("ä b", PartitionKey("/pk"))
    await database.create_container("c", PartitionKey("/address/zip"))
    assert [x["id"] async for x in client.list_databases()] == ["d"]
    assert [x["id"] async for x in database.list_containers()] == ["c", "ä b"]
    wanted = {"name": "@id", "value": "c"}
    found = database.query_containers("SELECT * FROM r WHERE r.id = @id", parameters=[wanted])
    assert [x["partitionKey"]["paths"] async for x in found] == [["/address/zip"]]
    spaced = database.get_container_client("ä b")
    await spaced.create_item({"id": "ö x", "pk": None})
    assert (await spaced.read_item("ö x", None))["pk"] is None
    await database.delete_container("ä b")
    assert [x["id"] async for x in database.list_containers()] == ["c"]
    await client.delete_database("d")
    assert [x["id"] async for x in client.list_databases()] == []


async def test_a_container_is_found_by_its_resource_id_too(by_hand: Hand) -> None:
    named = (await by_hand.send("GET", "/dbs/d/colls/c")).body
    by_rid = await by_hand.send("GET", "/" + named["_self"])
    assert (by_rid.status, by_rid.body) == (200, named)


async def test_a_container_recreated_is_told_from_the_old_one(
    items: ContainerProxy, by_hand: Hand
) -> None:
    await items.create_item({"id": "1", "pk": "p"})
    old = (await items.read())["_rid"]
    await by_hand.send("DELETE", "/dbs/d/colls/c")
    await by_hand.send(
        "POST", "/dbs/d/colls", {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}}
    )
    header = {"x-ms-cosmos-intended-collection-rid": old}
    refused = await by_hand.send("GET", DOCS + "/1", headers=header, key="p")
    assert (refused.status, refused.substatus) == (400, 1024)
    await items.create_item({"id": "2", "pk": "p"})  # the client looks again by itself
    assert [x["id"] async for x in items.read_all_items()] == ["2"]


async def test_keys_of_every_type_and_none_find_their_items(by_hand: Hand) -> None:
    for name, key, body in (
        ("text", '["p"]', {"pk": "p"}),
        ("whole", "[1]", {"pk": 1}),
        ("float", "[1.5]", {"pk": 1.5}),
        ("true", "[true]", {"pk": True}),
        ("null", "[null]", {"pk": None}),
        ("none", "[{}]", {}),
    ):
        header = {"x-ms-documentdb-partitionkey": key}
        made = await by_hand.send("POST", DOCS, {"id": name, **body}, header)
        assert made.status == 201, name
        assert (await by_hand.send("GET", f"{DOCS}/{name}", headers=header)).status == 200
    one = {"x-ms-documentdb-partitionkey": "[1.0]"}
    assert (await by_hand.send("GET", f"{DOCS}/whole", headers=one)).status == 200
    assert (await by_hand.send("GET", f"{DOCS}/true", headers=one)).status == 404


async def test_charges_follow_size_and_indexing(client: CosmosClient) -> None:
    database = await client.create_database("d")
    plain = await database.create_container("plain", PartitionKey("/pk"))
    policy: dict[str, Any] = {
        "includedPaths": [{"path": "/pk/?"}],
        "excludedPaths": [{"path": "/*"}],
    }
    bare = await database.create_container("bare", PartitionKey("/pk"), indexing_policy=policy)
    item = {"id": "1", "pk": "p", **{f"n{i}": "x" * 90 for i in range(8)}}  # about 1 KB

    def charge(of: object) -> float:
        return float(of.get_response_headers()["x-ms-request-charge"])  # type: ignore[attr-defined]

    assert charge(await plain.create_item(item)) == 5.3
    assert charge(await bare.create_item(item)) == 4.76
    assert charge(await plain.upsert_item(item)) == 10.6
    assert charge(await plain.read_item("1", "p")) == 1
    large = {"id": "2", "pk": "p", "text": "x" * 100 * 1024}
    await plain.create_item(large)
    assert 9.9 < charge(await plain.read_item("2", "p")) < 10.1


async def test_minimal_answers_have_no_body(by_hand: Hand) -> None:
    header = {"Prefer": "return=minimal"}
    got = await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, header, key="p")
    assert (got.status, got.body) == (201, None)
    assert got.headers["x-ms-session-token"] == "0:0#1"
