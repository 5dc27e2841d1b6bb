"""Triggers around a write, and functions in queries: what else a container runs in V8."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from emulator.tests.by_hand import DOCS, Hand, Reply, hand
from emulator.tests.process import process

TRIGGERS, UDFS = "/dbs/d/colls/c/triggers", "/dbs/d/colls/c/udfs"
PRE = "x-ms-documentdb-pre-trigger-include"
POST = "x-ms-documentdb-post-trigger-include"
STAMP = """function () {
  var request = getContext().getRequest(), item = request.getBody();
  if (item.bad) throw new Error("a bad item");
  item.stamped = request.getOperationType();
  request.setBody(item);
}"""
COUNT = """function () {
  var c = getContext().getCollection(), made = getContext().getResponse().getBody();
  c.upsertDocument(c.getSelfLink(), {id: "count", pk: "p", last: made.id}, {}, function (e) {
    if (made.fatal) throw new Error("not this one");
    made.counted = true;
    getContext().getResponse().setBody(made);
  });
}"""


async def triggered(account: Hand, item: dict[str, Any], **headers: str) -> Reply:
    for name, kind, body in (("stamp", "Pre", STAMP), ("count", "Post", COUNT)):
        trigger = {"id": name, "triggerType": kind, "triggerOperation": "Create", "body": body}
        await account.send("POST", TRIGGERS, trigger)
    return await account.send("POST", DOCS, {"pk": "p", **item}, headers, key="p")


async def test_triggers_change_what_is_written_and_write_beside_it(by_hand: Hand) -> None:
    made = await triggered(by_hand, {"id": "1"}, **{PRE: "stamp", POST: "count"})
    assert (made.status, made.body["stamped"], made.body["counted"]) == (201, "Create", True)
    read = await by_hand.send("GET", f"{DOCS}/1", key="p")
    assert (read.body["stamped"], "counted" in read.body) == ("Create", False)
    assert made.headers["etag"] == read.body["_etag"]
    feed = (await by_hand.feed()).body["Documents"]
    assert [(x["id"], x["_lsn"]) for x in feed] == [("1", 1), ("count", 1)]


@pytest.mark.parametrize("item", [{"id": "1", "bad": True}, {"id": "1", "fatal": True}])
async def test_a_trigger_that_throws_undoes_the_write(
    by_hand: Hand, item: dict[str, Any]
) -> None:
    refused = await triggered(by_hand, item, **{PRE: "stamp", POST: "count"})
    assert refused.status == 400
    assert (await by_hand.send("GET", DOCS)).ids == []


async def test_a_trigger_runs_where_it_is_for(by_hand: Hand) -> None:
    await triggered(by_hand, {"id": "1"})
    item = {"id": "1", "pk": "p"}
    for verb, path, body, headers in (
        ("PUT", f"{DOCS}/1", item, {PRE: "stamp"}),
        ("POST", DOCS, item, {PRE: "count"}),
        ("POST", DOCS, item, {POST: "stamp"}),
        ("PATCH", f"{DOCS}/1", {"operations": []}, {PRE: "stamp"}),
    ):
        assert (await by_hand.send(verb, path, body, headers, key="p")).status == 400
    missing = await by_hand.send("POST", DOCS, item, {PRE: "none"}, key="p")
    assert missing.status == 404
    everything = {"id": "any", "triggerType": "Pre", "triggerOperation": "All", "body": STAMP}
    await by_hand.send("POST", TRIGGERS, everything)
    for verb, path, headers, status in (
        ("PUT", f"{DOCS}/1", {}, 200),
        ("POST", DOCS, {"x-ms-documentdb-is-upsert": "True"}, 200),
        ("POST", DOCS, {}, 409),
        ("PUT", f"{DOCS}/1", {"If-Match": '"no"'}, 412),
    ):
        done = await by_hand.send(verb, path, item, {PRE: "any", **headers}, key="p")
        assert done.status == status, done.body
    delete = {"id": "gone", "triggerType": "Post", "triggerOperation": "Delete"}
    await by_hand.send("POST", TRIGGERS, delete | {"body": "function () {}"})
    assert (
        await by_hand.send("DELETE", f"{DOCS}/1", None, {POST: "gone"}, key="p")
    ).status == 204
    assert (await by_hand.send("GET", f"{DOCS}/1", key="p")).status == 404


async def test_a_query_calls_functions_of_its_container(by_hand: Hand) -> None:
    for name, body in (
        ("twice", "function (x) { return 2 * x; }"),
        ("kind", "function (x) { return typeof x; }"),
        ("nothing", "function () {}"),
        ("maps", "function (x) { return {n: [x, null]}; }"),
    ):
        await by_hand.send("POST", UDFS, {"id": name, "body": body})
    for i in range(3):
        await by_hand.send("POST", DOCS, {"id": str(i), "pk": "p", "n": i}, key="p")
    for text, wanted in (
        ("SELECT VALUE udf.twice(c.n) FROM c", [0, 2, 4]),
        ("SELECT VALUE c.n FROM c WHERE udf.twice(c.n) > 1", [1, 2]),
        ("SELECT VALUE udf.kind(c.missing) FROM c WHERE c.n = 1", ["undefined"]),
        ("SELECT VALUE udf.nothing() FROM c", []),
        (
            "SELECT udf.maps(udf.twice(c.n)) AS m FROM c WHERE c.n = 2",
            [{"m": {"n": [4, None]}}],
        ),
        ("SELECT VALUE SUM(udf.twice(c.n)) FROM c", [6]),
        ("SELECT VALUE c.n FROM c ORDER BY udf.twice(c.n) DESC", [2, 1, 0]),
    ):
        found = await by_hand.query(text)
        assert (found.status, found.body.get("Documents")) == (200, wanted), (text, found.body)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("function (x) { throw new Error('oh'); }", 400, "Error: oh"),
        ("function (x) { getContext().getResponse(); }", 400, "response"),
        ("function ( {", 400, "compiled"),
        ("function f(x) { return f(x); }", 400, "call stack"),
        ("function (x) { for (;;); }", 408, "longer than it may"),
    ],
)
async def test_a_function_that_fails_fails_its_query(
    by_hand: Hand, body: str, status: int, words: str
) -> None:
    await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
    await by_hand.send("POST", UDFS, {"id": "f", "body": body})
    refused = await by_hand.query("SELECT VALUE udf.f(c) FROM c")
    assert (refused.status, words in refused.body["message"]) == (status, True), refused.body
    assert (await by_hand.query("SELECT VALUE udf.none(c) FROM c")).status == 400


async def test_sigterm_ends_the_process_beside_a_script_without_end(tmp_path: Path) -> None:
    async with process(tmp_path) as (serving, url), hand(url) as account:
        sprocs = "/dbs/d/colls/c/sprocs"
        await account.send("POST", sprocs, {"id": "s", "body": "function () { for (;;); }"})
        endless = asyncio.create_task(account.send("POST", f"{sprocs}/s", [], key="p"))
        await asyncio.sleep(1)
        serving.send_signal(signal.SIGTERM)
        assert await serving.wait() == 0
        assert (await endless).status == 500, "408: its time was waited for"
