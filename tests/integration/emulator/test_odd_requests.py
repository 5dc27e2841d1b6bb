"""Requests that no careful client sends: refused with a text, and nothing is stored."""

from typing import Any

import pytest

from tests.integration.emulator.running import DOCS, Hand

pytestmark = pytest.mark.real_time


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


@pytest.mark.parametrize("ttl", [2**31, 2**70, 0, -2, True, 1.5, "1"])
async def test_a_ttl_that_no_account_takes_is_refused(by_hand: Hand, ttl: Any) -> None:
    item = {"id": "a", "pk": "p", "ttl": ttl}
    assert (await by_hand.send("POST", DOCS, item, key="p")).status == 400


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
