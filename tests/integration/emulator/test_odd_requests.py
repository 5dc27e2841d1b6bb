"""Requests that no careful client sends: refused with a text, and nothing is stored."""

from typing import Any

import pytest

from changefeed.emulator import DEVELOPMENT_KEY
from tests.integration.emulator.running import DOCS, Hand, signed

pytestmark = pytest.mark.real_time
DIGITS = "9" * 40


async def container(by_hand: Hand, **more: Any) -> int:
    body = {"id": "odd", "partitionKey": {"paths": ["/pk"]}}
    return (await by_hand.send("POST", "/dbs/d/colls", body | more)).status


@pytest.mark.parametrize(
    "part",
    [
        {"indexingPolicy": 5},
        {"indexingPolicy": {"includedPaths": 5}},
        {"indexingPolicy": {"excludedPaths": [{"path": 1}]}},
        {"indexingPolicy": {"indexingMode": []}},
        {"uniqueKeyPolicy": 5},
        {"uniqueKeyPolicy": {"uniqueKeys": [{"paths": []}]}},
        {"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["email"]}]}},
        {"conflictResolutionPolicy": "none"},
        {"defaultTtl": True},
        {"defaultTtl": 2**40},
        {"partitionKey": {"paths": [5]}},
        {"partitionKey": {"paths": ["/pk"], "kind": {"id": 5}}},
        {"partitionKey": {"paths": ["/pk"], "version": [2]}},
    ],
)
async def test_a_wrong_definition_is_refused_and_listings_go_on(
    by_hand: Hand, part: dict[str, Any]
) -> None:
    assert await container(by_hand, **part) == 400
    listed = await by_hand.send("GET", "/dbs/d/colls")
    assert [x["id"] for x in listed.body["DocumentCollections"]] == ["c"]
    changed = await by_hand.send(
        "PUT", "/dbs/d/colls/c", {"id": "c", "partitionKey": {"paths": ["/pk"]}} | part
    )
    assert changed.status == 400
    assert (await by_hand.send("GET", "/dbs/d/colls/c")).status == 200


async def test_a_signature_that_is_not_ascii_is_a_wrong_one(by_hand: Hand) -> None:
    header = {"Authorization": "type%3Dmaster%26ver%3D1.0%26sig%3D%C3%A9"}
    assert (await by_hand.send("GET", "/dbs/d", headers=header)).status == 401


async def test_a_body_that_is_not_utf8_is_no_json(by_hand: Hand) -> None:
    headers = signed("POST", DOCS, DEVELOPMENT_KEY) | {"x-ms-documentdb-partitionkey": '["p"]'}
    url, body = by_hand.url.rstrip("/") + DOCS, b'{"id":"a\xff","pk":"p"}'
    async with by_hand.session.post(url, data=body, headers=headers) as got:
        assert got.status == 400, await got.text()
        assert "valid JSON" in await got.text()


@pytest.mark.parametrize("ttl", [2**31, 2**70, 0, -2, True, 1.5, "1"])
async def test_a_ttl_that_no_account_takes_is_refused(by_hand: Hand, ttl: Any) -> None:
    item = {"id": "a", "pk": "p", "ttl": ttl}
    assert (await by_hand.send("POST", DOCS, item, key="p")).status == 400


async def test_numbers_of_many_digits_are_refused_wherever_they_stand(by_hand: Hand) -> None:
    assert (await by_hand.feed(f'"{DIGITS}"')).status == 400
    throughput = {"x-ms-offer-throughput": DIGITS}
    body = {"id": "odd", "partitionKey": {"paths": ["/pk"]}}
    assert (await by_hand.send("POST", "/dbs/d/colls", body, throughput)).status == 400
    header = {"x-ms-documentdb-partitionkeyrangeid": "0", "x-ms-continuation": f"i:{DIGITS}"}
    assert (await by_hand.send("GET", DOCS, headers=header)).status == 400


async def test_an_empty_continuation_is_none(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, {"id": "a", "pk": "p"}, key="p")
    got = await by_hand.send("GET", DOCS, headers={"x-ms-continuation": ""})
    assert got.ids == ["a"]


async def test_a_container_answers_one_token_and_the_path_of_its_database(
    by_hand: Hand,
) -> None:
    await by_hand.split()
    got = await by_hand.send("GET", "/dbs/d/colls/c")
    assert got.headers["x-ms-session-token"] == "1:0#0"
    assert got.headers["x-ms-alt-content-path"] == "dbs/d"
    assert (
        got.headers["x-ms-content-path"] == (await by_hand.send("GET", "/dbs/d")).body["_rid"]
    )
    wide = await by_hand.query("SELECT * FROM c")
    assert wide.headers["x-ms-session-token"] == "1:0#0"
    assert wide.headers["x-ms-alt-content-path"] == "dbs/d/colls/c"


async def test_latest_versions_come_with_metadata_to_those_who_ask_for_it(
    by_hand: Hand,
) -> None:
    made = await by_hand.send("POST", DOCS, {"id": "a", "pk": "p"}, key="p")
    version = {"x-ms-cosmos-changefeed-wire-format-version": "2021-09-15"}
    got = await by_hand.feed(**version)
    entry = {"current": made.body | {"_lsn": 1}, "metadata": {"lsn": 1}}
    entry["metadata"]["crts"] = made.body["_ts"]
    assert got.body["Documents"] == [entry]
    assert (await by_hand.feed()).ids == ["a"]


@pytest.mark.parametrize(
    "part",
    [
        {"probability": 5},
        {"probability": -1},
        {"status": 99999},
        {"status": 200},
        {"seconds": -1},
        {"times": 0},
        {"retry_after_ms": -1},
        {"substatus": -1},
    ],
)
async def test_a_fault_out_of_its_bounds_is_refused(
    by_hand: Hand, url: str, part: dict[str, Any]
) -> None:
    fault = {"effect": "error", **part}
    async with by_hand.session.post(f"{url}_emulator/faults", json=fault) as got:
        assert got.status == 400, await got.text()
    assert await by_hand.control("GET", "faults") == []


@pytest.mark.parametrize("condition", [5, "FROM c WHERE COUNT(1) > 0", "FROM c WHERE true x"])
async def test_a_condition_of_a_patch_that_is_none_is_refused(
    by_hand: Hand, condition: Any
) -> None:
    await by_hand.send("POST", DOCS, {"id": "a", "pk": "p"}, key="p")
    operations = [{"op": "set", "path": "/n", "value": 1}]
    body = {"condition": condition, "operations": operations}
    assert (await by_hand.send("PATCH", f"{DOCS}/a", body, key="p")).status == 400


@pytest.mark.parametrize("operation", [{}, [], None, 5, "jump"])
async def test_an_operation_of_a_patch_that_is_none_is_refused(
    by_hand: Hand, operation: Any
) -> None:
    await by_hand.send("POST", DOCS, {"id": "a", "pk": "p"}, key="p")
    body = {"operations": [{"op": operation, "path": "/n", "value": 1}]}
    assert (await by_hand.send("PATCH", f"{DOCS}/a", body, key="p")).status == 400


@pytest.mark.parametrize("bounds", [("zz", "FF"), ("20", "10"), ("10", "10"), ("FFF", "FFFF")])
async def test_bounds_without_hashes_between_them_are_refused(
    by_hand: Hand, bounds: tuple[str, str]
) -> None:
    headers = dict(zip(("x-ms-start-epk", "x-ms-end-epk"), bounds, strict=True))
    assert (await by_hand.send("GET", DOCS, headers=headers)).status == 400


@pytest.mark.parametrize("kind", ["Replace", "Upsert", "Delete", "Patch"])
@pytest.mark.parametrize("condition", ["ifMatch", "ifNoneMatch"])
async def test_an_etag_in_a_batch_that_is_no_text_is_refused(
    by_hand: Hand, kind: str, condition: str
) -> None:
    item = {"id": "a", "pk": "p"}
    await by_hand.send("POST", DOCS, item, key="p")
    operation = {"operationType": kind, "id": "a", "resourceBody": item, condition: 5}
    headers = {"x-ms-cosmos-is-batch-request": "True"}
    got = await by_hand.send("POST", DOCS, [operation], headers, key="p")
    assert got.status == 207
    assert (got.body[0]["statusCode"], condition in got.body[0]["message"]) == (400, True)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT TOP {DIGITS} * FROM c",
        f"SELECT * FROM c OFFSET {DIGITS} LIMIT 1",
        f"SELECT * FROM c OFFSET 0 LIMIT {DIGITS}",
    ],
)
async def test_a_query_for_more_results_than_there_can_be_is_refused(
    by_hand: Hand, text: str
) -> None:
    got = await by_hand.query(text)
    assert (got.status, "must be a whole number up to" in got.body["message"]) == (400, True)


@pytest.mark.parametrize("text", ["SELECT VALUE {} FROM c", "SELECT VALUE c[{}] FROM c"])
async def test_a_number_of_thousands_of_digits_is_one(by_hand: Hand, text: str) -> None:
    assert (await by_hand.query(text.format("9" * 5000))).status == 200


async def test_what_is_left_of_infinity_is_undefined(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, {"id": "a", "pk": "p"}, key="p")
    assert (await by_hand.query("SELECT VALUE 1e999 % 5 FROM c")).body["Documents"] == []


async def test_a_name_with_the_end_of_a_line_in_it_is_found_again(by_hand: Hand) -> None:
    name = "a\r\nb"
    assert (await by_hand.send("POST", "/dbs", {"id": name})).status == 201
    assert (await by_hand.send("GET", f"/dbs/{name}/colls")).body["_count"] == 0
    assert (await by_hand.send("DELETE", f"/dbs/{name}")).status == 204
