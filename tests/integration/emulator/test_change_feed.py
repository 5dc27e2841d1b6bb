"""The change feed in both modes: what is in it, in which order, and where it goes on."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from changefeed.emulator.hashing import effective_partition_key
from tests.integration.emulator.running import DOCS, Hand, Reply, container, continuation

pytestmark = pytest.mark.real_time
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


async def test_an_item_appears_once_at_its_newest_lsn_and_deleted_ones_not_at_all(
    by_hand: Hand,
) -> None:
    await put(by_hand, "a", "b", "c", "a")
    await by_hand.send("DELETE", DOCS + "/b", key="p")
    got = await by_hand.feed()
    assert [(x["id"], x["_lsn"]) for x in got.body["Documents"]] == [("c", 3), ("a", 4)]
    assert got.headers["etag"] == '"4"'
    assert got.headers["x-ms-session-token"] == "0:0#5"
    assert got.body["_count"] == 2


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


async def test_now_skips_what_was_before_and_nothing_after(by_hand: Hand) -> None:
    await put(by_hand, "a")
    now = await by_hand.feed("*")
    assert (now.status, now.headers["etag"]) == (304, '"1"')
    await put(by_hand, "b")
    assert (await by_hand.feed(now.headers["etag"])).ids == ["b"]


async def test_a_page_never_ends_inside_a_transaction(
    by_hand: Hand, items: ContainerProxy
) -> None:
    await put(by_hand, "a")
    await items.execute_item_batch([("create", ({"id": x, "pk": "p"},)) for x in "bcd"], "p")
    await put(by_hand, "e")
    first = await by_hand.feed(x_ms_max_item_count="2")
    assert (first.ids, first.headers["etag"]) == (["a", "b", "c", "d"], '"2"')
    assert (await by_hand.feed(first.headers["etag"])).ids == ["e"]


async def test_a_page_ends_at_four_megabytes_and_minus_one_means_all_that_fits(
    by_hand: Hand,
) -> None:
    await put(by_hand, *"abcd", text="x" * 1_500_000)
    assert (await by_hand.feed(x_ms_max_item_count="-1")).ids == ["a", "b", "c"]


async def test_a_point_in_time_includes_its_own_second(by_hand: Hand) -> None:
    await put(by_hand, "old")
    await asyncio.sleep(1.1)
    since = datetime.now(UTC)
    await put(by_hand, "new")

    def at(moment: datetime) -> dict[str, str]:
        return {"If-Modified-Since": format_datetime(moment, usegmt=True)}

    assert (await by_hand.feed(**at(since))).ids == ["new"]
    assert (await by_hand.feed(**at(since - timedelta(minutes=1)))).ids == ["old", "new"]
    later = await by_hand.feed(**at(since + timedelta(minutes=1)))
    assert (later.status, later.headers["etag"]) == (304, '"2"')


async def test_a_part_of_the_hash_space_is_read_alone(by_hand: Hand) -> None:
    for name in "abcdefgh":
        await put(by_hand, name, pk=name)
    cut = "1" + "F" * 31
    low = await by_hand.feed(x_ms_start_epk="", x_ms_end_epk=cut)
    high = await by_hand.feed(x_ms_start_epk=cut, x_ms_end_epk="FF")
    assert low.ids == [x for x in "abcdefgh" if effective_partition_key(x) < cut]
    assert high.ids == [x for x in "abcdefgh" if effective_partition_key(x) >= cut]
    assert low.ids
    assert high.ids
    one = {"A-IM": "Incremental Feed"}
    assert (await by_hand.send("GET", DOCS, headers=one, key="d")).ids == ["d"]
    at = effective_partition_key("d")  # a bound belongs to what begins with it
    assert "d" not in (await by_hand.feed(x_ms_end_epk=at)).ids
    assert "d" in (await by_hand.feed(x_ms_start_epk=at)).ids


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


async def test_a_new_default_ttl_holds_for_items_that_are_there(client: CosmosClient) -> None:
    items = await container(client)
    await items.create_item({"id": "kept", "pk": "p", "ttl": 1000})
    await items.create_item({"id": "gone", "pk": "p"})
    database = client.get_database_client("d")
    await database.replace_container("c", PartitionKey("/pk"), default_ttl=1)
    await asyncio.sleep(1.1)
    assert [x["id"] async for x in items.read_all_items()] == ["kept"]


async def test_the_real_client_reads_both_modes_and_goes_on_where_it_was(
    items: ContainerProxy,
) -> None:
    versions = items.query_items_change_feed(start_time="Now", mode="AllVersionsAndDeletes")
    pages = versions.by_page()
    assert [x async for page in pages async for x in page] == []
    headers: dict[str, Any] = {}
    latest = items.query_items_change_feed(
        start_time="Beginning", max_item_count=2, response_hook=lambda h, _: headers.update(h)
    ).by_page()
    for i in range(5):
        await items.create_item({"id": str(i), "pk": f"p{i}"})
    first = [x["id"] async for x in await anext(latest)]
    token = continuation(latest)
    rest = [x["id"] async for x in items.query_items_change_feed(continuation=token)]
    assert first + rest == list("01234")
    await items.delete_item("3", "p3")
    changes = [x async for page in pages async for x in page]
    assert [x["metadata"]["operationType"] for x in changes] == ["create"] * 5 + ["delete"]
    since = datetime.now(UTC) - timedelta(minutes=1)
    timed = items.query_items_change_feed(start_time=since)
    assert [x["id"] async for x in timed] == ["0", "1", "2", "4"]
    key = await items.feed_range_from_partition_key("p1")
    own = items.query_items_change_feed(feed_range=key, start_time="Beginning")
    assert [x["id"] async for x in own] == ["1"]
