"""Requests that no careful client sends: refused with a text, and nothing is stored."""

import io
from typing import Any

import pytest

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.by_hand import DOCS, Hand, signed


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
    wide = await by_hand.query_everywhere("SELECT * FROM c")
    assert wide.headers["x-ms-session-token"] == "1:0#0"
    assert wide.headers["x-ms-alt-content-path"] == "dbs/d/colls/c"


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


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        (5, "1 to 100 operations"),
        ({}, "1 to 100 operations"),
        ([], "Batch request has no operations."),
        ([{}] * 101, "Batch request has more operations than what is supported."),
    ],
    ids=["5", "{}", "[]", "101"],
)
async def test_a_batch_that_is_none_or_too_long_is_refused_whole(
    by_hand: Hand, operations: object, says: str
) -> None:
    as_batch = {"x-ms-cosmos-is-batch-request": "True"}
    said = await by_hand.send("POST", "/dbs/d/colls/c/docs", operations, as_batch, key="p")
    assert (said.status, says in str(said.body)) == (400, True)
    assert (await by_hand.feed()).status == 304


@pytest.mark.parametrize(("letters", "status"), [(300_000, 201), (350_000, 413)])
async def test_an_item_may_have_2_mb_as_it_is_sent_escapes_counted(
    by_hand: Hand, letters: int, status: int
) -> None:
    body = b'{"id": "long", "pk": "p", "text": "%b"}' % (rb"\u00e4" * letters)
    sent = signed("POST", DOCS, DEVELOPMENT_KEY) | {"x-ms-documentdb-partitionkey": '["p"]'}
    url = by_hand.url.rstrip("/") + DOCS
    async with by_hand.session.post(url, data=io.BytesIO(body), headers=sent) as got:
        assert got.status == status
