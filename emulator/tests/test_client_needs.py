"""What clients of other languages look for in answers, each by plain HTTP."""

import base64
import hashlib
import hmac
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import pytest
import yarl

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.by_hand import DOCS, Hand, Reply

COLLS = "/dbs/d/colls"
KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


async def put(by_hand: Hand, name: str, **headers: str) -> Reply:
    sent = {k.replace("_", "-"): v for k, v in headers.items()}
    return await by_hand.send("POST", DOCS, {"id": name, "pk": "p"}, sent, key="p")


def signed_by_rid(verb: str, rid: str) -> dict[str, str]:
    date = formatdate(usegmt=True)
    text = f"{verb.lower()}\ndocs\n{rid.lower()}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(DEVELOPMENT_KEY), text.encode(), hashlib.sha256)
    token = f"type=master&ver=1.0&sig={base64.b64encode(digest.digest()).decode()}"
    return {"Authorization": quote(token, safe=""), "x-ms-date": date}


async def test_an_item_is_found_by_its_resource_id(by_hand: Hand) -> None:
    made, other = (await put(by_hand, "1")).body, (await put(by_hand, "2")).body
    path, key = f"/{made['_self'].rstrip('/')}", "p"
    got = await by_hand.send("GET", path, headers=signed_by_rid("GET", made["_rid"]), key=key)
    assert (got.status, got.body["id"]) == (200, "1")
    missing = await by_hand.send(
        "GET", path, headers=signed_by_rid("GET", made["_rid"]), key="q"
    )
    assert missing.status == 404
    gone = await by_hand.send(
        "DELETE", path, headers=signed_by_rid("DELETE", made["_rid"]), key=key
    )
    assert gone.status == 204
    assert (await by_hand.query("SELECT * FROM c")).ids == [other["id"]]


async def test_a_replace_may_give_another_name_and_a_patch_may_not(by_hand: Hand) -> None:
    old = (await put(by_hand, "old")).body
    await put(by_hand, "taken")
    taken = await by_hand.send("PUT", f"{DOCS}/old", {"id": "taken", "pk": "p"}, key="p")
    assert taken.status == 409
    renamed = await by_hand.send("PUT", f"{DOCS}/old", {"id": "new", "pk": "p"}, key="p")
    assert (renamed.status, renamed.body["_rid"]) == (200, old["_rid"])
    assert sorted((await by_hand.query("SELECT * FROM c")).ids) == ["new", "taken"]
    change = [{"op": "set", "path": "/id", "value": "newer"}]
    assert (await by_hand.send("PATCH", f"{DOCS}/new", change, key="p")).status == 400


async def test_lists_come_in_pages(by_hand: Hand) -> None:
    for name in ("é", "x y", "a"):
        await by_hand.send("POST", "/dbs", {"id": name})
        await by_hand.send("POST", "/dbs/d/users", {"id": name})
        await by_hand.send("POST", COLLS, {"id": name, "partitionKey": KEY})
    for path, what in (
        ("/dbs", "Databases"),
        (COLLS, "DocumentCollections"),
        ("/dbs/d/users", "Users"),
    ):
        found: list[str] = []
        headers = {"x-ms-max-item-count": "1"}
        while True:
            page = await by_hand.send("GET", path, headers=headers)
            assert page.body["_count"] == len(page.body[what]) <= 1
            found += [x["id"] for x in page.body[what]]
            if "x-ms-continuation" not in page.headers:
                break
            headers["x-ms-continuation"] = page.headers["x-ms-continuation"]
        assert [x for x in found if x not in "cd"] == ["a", "x y", "é"]
    wrong = await by_hand.send("GET", "/dbs", headers={"x-ms-continuation": "§"})
    assert wrong.status == 400


async def test_an_indexing_policy_is_completed(by_hand: Hand) -> None:
    given = {"includedPaths": [{"path": "/a/?"}], "automatic": False}
    body = {"id": "i", "partitionKey": KEY, "indexingPolicy": given}
    made = (await by_hand.send("POST", COLLS, body)).body["indexingPolicy"]
    assert made == {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/a/?"}],
        "excludedPaths": [{"path": '/"_etag"/?'}],
    }


@pytest.mark.parametrize("by_operation", [False, True])
async def test_a_batch_answers_without_items_when_that_is_asked_for(
    by_hand: Hand, *, by_operation: bool
) -> None:
    create: dict[str, Any] = {"operationType": "Create", "resourceBody": {"id": "1", "pk": "p"}}
    create |= {"minimalReturnPreference": True} if by_operation else {}
    headers = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
    headers |= {} if by_operation else {"Prefer": "return=minimal"}
    read = {"operationType": "Read", "id": "1"}
    done = await by_hand.send("POST", DOCS, [create, read], headers, key="p")
    first, second = done.body
    assert ("resourceBody" in first, "eTag" in first) == (False, True)
    assert second["resourceBody"]["id"] == "1"


@pytest.mark.parametrize(
    ("verb", "name", "status"), [("GET", "none", 404), ("POST", "there", 409)]
)
async def test_an_error_about_an_item_tells_its_range_and_session(
    by_hand: Hand, verb: str, name: str, status: int
) -> None:
    await put(by_hand, "there")
    got = (
        await put(by_hand, name)
        if verb == "POST"
        else await by_hand.send(verb, f"{DOCS}/{name}", key="p")
    )
    told = got.headers
    assert got.status == status
    assert told["x-ms-session-token"] == "0:0#1"
    assert (told["x-ms-documentdb-partitionkeyrangeid"], told["lsn"]) == ("0", "1")


async def test_answers_have_the_headers_that_clients_read(by_hand: Hand) -> None:
    await put(by_hand, "1")
    made = await put(by_hand, "2")
    assert made.headers["x-ms-item-lsn"] == "2"
    got = await by_hand.send("GET", f"{DOCS}/1", key="p")
    assert (got.headers["x-ms-item-lsn"], got.headers["lsn"]) == ("1", "2")
    assert got.headers["Content-Location"] == f"{by_hand.url.rstrip('/')}{DOCS}/1"
    account = await by_hand.send("GET", "/")
    assert account.headers["x-ms-media-storage-usage-mb"] == "0"
    assert int(account.headers["x-ms-max-media-storage-usage-mb"]) > 0
    asked = {"x-ms-documentdb-populatequotainfo": "True"}
    quota = (await by_hand.send("GET", f"{COLLS}/c", headers=asked)).headers
    usage = dict(x.split("=") for x in quota["x-ms-resource-usage"].strip(";").split(";"))
    assert usage["documentsCount"] == "2"
    assert "collectionSize=" in quota["x-ms-resource-quota"]
    plain = await by_hand.send("GET", f"{COLLS}/c")
    assert "x-ms-resource-usage" not in plain.headers


async def test_no_page_size_at_all_is_the_usual_one(by_hand: Hand) -> None:
    await put(by_hand, "1")
    got = await by_hand.send("GET", DOCS, headers={"x-ms-max-item-count": "0"})
    assert (got.status, got.ids) == (200, ["1"])


@pytest.mark.parametrize("name", ["a?b", "a#b", "a/b", "a\\b", "ä %2F"])
async def test_an_item_may_have_any_name(by_hand: Hand, name: str) -> None:
    assert (await put(by_hand, name)).status == 201
    path = f"{DOCS}/{quote(name, safe='')}"
    date = formatdate(usegmt=True)
    text = f"get\ndocs\n{DOCS[1:]}/{name}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(DEVELOPMENT_KEY), text.encode(), hashlib.sha256)
    sig = base64.b64encode(digest.digest()).decode()
    headers = {
        "Authorization": quote(f"type=master&ver=1.0&sig={sig}", safe=""),
        "x-ms-date": date,
        "x-ms-documentdb-partitionkey": '["p"]',
    }
    where = yarl.URL(by_hand.url.rstrip("/") + path, encoded=True)
    async with by_hand.session.get(where, headers=headers) as got:
        assert (got.status, (await got.json())["id"]) == (200, name)


async def test_one_region_has_no_conflicts(by_hand: Hand) -> None:
    feed = "/dbs/d/colls/c/conflicts"
    listed = await by_hand.send("GET", feed)
    assert (listed.status, listed.body["Conflicts"], listed.body["_count"]) == (200, [], 0)
    asked = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
    everywhere = asked | {"x-ms-documentdb-query-enablecrosspartition": "True"}
    queried = await by_hand.send("POST", feed, {"query": "SELECT * FROM c"}, everywhere)
    assert (queried.status, queried.body["Conflicts"]) == (200, [])
    refused = await by_hand.send("POST", feed, {"query": "SELECT * FROM c"}, asked)
    assert (refused.status, "required but disabled" in str(refused.body)) == (400, True)
    assert (await by_hand.send("GET", f"{feed}/x")).status == 404


async def test_an_account_at_localhost_says_its_address_in_numbers(by_hand: Hand) -> None:
    port = yarl.URL(by_hand.url).port
    by_name = Hand(f"http://localhost:{port}/", by_hand.session)
    for one in (by_hand, by_name):
        account = (await one.send("GET", "/")).body
        (region,) = account["writableLocations"]
        assert region["databaseAccountEndpoint"] == f"http://127.0.0.1:{port}/"


async def test_each_resource_is_read_and_changed_under_its_etag(by_hand: Hand) -> None:
    offer = (await by_hand.send("GET", "/offers")).body["Offers"][0]
    await by_hand.send("POST", "/dbs/d/users", {"id": "u"})
    allowed = {"id": "p", "permissionMode": "All", "resource": "dbs/d/colls/c"}
    await by_hand.send("POST", "/dbs/d/users/u/permissions", allowed)
    await by_hand.send("POST", f"{COLLS}/c/sprocs", {"id": "s", "body": "function s() {}"})
    for path, changed in (
        (f"/{offer['_self'].rstrip('/').lower()}", offer),
        (f"{COLLS}/c/sprocs/s", {"id": "s", "body": "function s() {return 1;}"}),
        ("/dbs/d/users/u/permissions/p", allowed),
        ("/dbs/d/users/u", {"id": "u"}),
        (f"{COLLS}/c", {"id": "c", "partitionKey": KEY}),
        ("/dbs/d", None),
    ):
        etag = (await by_hand.send("GET", path)).headers["etag"]
        known = await by_hand.send("GET", path, headers={"If-None-Match": etag})
        assert (path, known.status, known.body) == (path, 304, None)
        stale = {"If-Match": '"stale"'}
        assert (await by_hand.send("GET", path, headers={"If-None-Match": "x"})).status == 200
        if changed is not None:
            assert (await by_hand.send("PUT", path, changed, stale)).status == 412
            assert (await by_hand.send("PUT", path, changed, {"If-Match": etag})).status == 200
        if changed is not offer:
            assert (await by_hand.send("DELETE", path, headers=stale)).status == 412
            gone = await by_hand.send("DELETE", path, headers={"If-Match": "*"})
            assert (path, gone.status) == (path, 204)
