"""The change feed in both modes: what is in it, in which order, and where it goes on."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from emulator.tests.by_hand import DOCS, Hand, Reply, container

ALL_VERSIONS = {
    "A-IM": "Full-Fidelity Feed",
    "x-ms-cosmos-changefeed-wire-format-version": "2021-09-15",
}


async def put(by_hand: Hand, *ids: str, pk: str = "p", **more: Any) -> None:
    for name in ids:
        header = {"x-ms-documentdb-is-upsert": "True"}
        got = await by_hand.send("POST", DOCS, {"id": name, "pk": pk, **more}, header, key=pk)
        assert got.status in {200, 201}


async def all_versions(by_hand: Hand, after: str) -> Reply:
    return await by_hand.feed(after, **ALL_VERSIONS)


async def test_a_reader_goes_on_behind_the_etag_and_gets_one_even_with_304(
    by_hand: Hand,
) -> None:
    empty = await by_hand.feed()
    assert (empty.status, empty.headers["etag"], empty.body) == (304, '"0"', None)
    await put(by_hand, "a", "b", "c")
    first = await by_hand.feed(empty.headers["etag"], x_ms_max_item_count="2")
    assert first.ids == ["a", "b"]
    second = await by_hand.feed(first.headers["etag"])
    assert second.ids == ["c"]
    end = await by_hand.feed(second.headers["etag"])
    assert (end.status, end.headers["etag"]) == (304, '"3"')
    assert end.headers["x-ms-session-token"] == "0:0#3"


async def test_a_page_never_ends_inside_a_transaction(
    by_hand: Hand, items: ContainerProxy
) -> None:
    await put(by_hand, "a")
    await items.execute_item_batch([("create", ({"id": x, "pk": "p"},)) for x in "bcd"], "p")
    await put(by_hand, "e")
    first = await by_hand.feed(x_ms_max_item_count="2")
    assert (first.ids, first.headers["etag"]) == (["a", "b", "c", "d"], '"2"')
    assert (await by_hand.feed(first.headers["etag"])).ids == ["e"]


async def test_a_feed_without_a_range_is_refused_where_there_are_several(
    client: CosmosClient, by_hand: Hand
) -> None:
    await container(client, "wide", offer_throughput=30_000)
    path = "/dbs/d/colls/wide/docs"
    got = await by_hand.send("GET", path, headers={"A-IM": "Incremental Feed"})
    assert (got.status, got.substatus) == (400, 1004)
    wrong = await by_hand.feed('"x"')
    assert wrong.status == 400
    assert (await by_hand.feed(**{"A-IM": "Other"})).status == 400


async def test_all_versions_has_every_change_with_the_image_before_it(by_hand: Hand) -> None:
    await put(by_hand, "before")
    start = (await all_versions(by_hand, "*")).headers["etag"]
    await put(by_hand, "a", n=1)
    await put(by_hand, "a", n=2)
    await by_hand.send("DELETE", DOCS + "/a", key="p")
    await put(by_hand, "a", n=3)
    got = (await all_versions(by_hand, start)).body["Documents"]
    told = [
        (
            x["metadata"]["operationType"],
            x["metadata"]["lsn"],
            x["metadata"].get("previousImageLSN"),
            x["current"].get("n"),
            x.get("previous", {}).get("n"),
        )
        for x in got
    ]
    assert told == [
        ("create", 2, None, 1, None),
        ("replace", 3, 2, 2, 1),
        ("delete", 4, 3, None, 2),
        ("create", 5, None, 3, None),
    ]
    assert got[2]["metadata"]["id"] == "a"
    assert got[2]["metadata"]["partitionKey"] == {"pk": "p"}
    assert got[2]["metadata"]["timeToLiveExpired"] is False
    assert abs(got[0]["metadata"]["crts"] - datetime.now(UTC).timestamp()) < 5


async def test_all_versions_starts_from_now_or_a_continuation_only(by_hand: Hand) -> None:
    headers = {"x-ms-documentdb-partitionkeyrangeid": "0", **ALL_VERSIONS}
    got = await by_hand.send("GET", DOCS, headers=headers)
    assert got.status == 400
    assert "starts from now" in got.body["message"]
    since = headers | {
        "If-None-Match": "*",
        "If-Modified-Since": "Fri, 01 Jan 2021 00:00:00 GMT",
    }
    assert (await by_hand.send("GET", DOCS, headers=since)).status == 400


async def test_an_expired_item_is_gone_and_its_delete_says_that_it_expired(
    client: CosmosClient, by_hand: Hand
) -> None:
    database = await client.create_database_if_not_exists("d")
    items = await database.create_container("t", PartitionKey("/pk"), default_ttl=-1)
    path = "/dbs/d/colls/t/docs"
    headers = {"x-ms-documentdb-partitionkeyrangeid": "0", "If-None-Match": "*", **ALL_VERSIONS}
    start = (await by_hand.send("GET", path, headers=headers)).headers["etag"]
    await items.create_item({"id": "short", "pk": "p", "ttl": 1})
    await items.create_item({"id": "kept", "pk": "p"})
    await asyncio.sleep(1.1)
    assert [x["id"] async for x in items.read_all_items()] == ["kept"]
    assert [x["id"] async for x in items.query_items_change_feed(start_time="Beginning")] == [
        "kept"
    ]
    again = await by_hand.send("GET", path, headers=headers | {"If-None-Match": start})
    last = again.body["Documents"][-1]
    assert (last["metadata"]["operationType"], last["metadata"]["id"]) == ("delete", "short")
    assert last["metadata"]["timeToLiveExpired"] is True
    assert last["previous"]["ttl"] == 1
    await items.create_item({"id": "short", "pk": "p"})
