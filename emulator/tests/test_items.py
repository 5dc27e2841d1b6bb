"""Databases, containers and items, through the real client and by hand."""

import asyncio
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceNotFoundError,
)

from emulator.tests.by_hand import DOCS, Hand

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


@pytest.mark.parametrize(
    ("body", "key", "status", "substatus"),
    [
        ({"pk": "p"}, "p", 400, 0),
        ({"id": "", "pk": "p"}, "p", 400, 0),
        ({"id": "x" * 1024, "pk": "p"}, "p", 400, 0),
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
