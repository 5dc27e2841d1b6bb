"""Stored procedures: one partition, one transaction, the collection of the docs."""

import asyncio
from collections import Counter
from threading import current_thread
from typing import Any
from urllib.parse import unquote

import pytest

from cosmos_emulator.store import Store
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, Reply, hand

SPROCS = "/dbs/d/colls/c/sprocs"
START = "var c = getContext().getCollection(), r = getContext().getResponse();"


async def runs(
    account: Hand, body: str, *parameters: Any, key: str = "p", **headers: str
) -> Reply:
    """Store a procedure under a name of its own, and run it."""
    name = f"s{abs(hash(body))}"
    await account.send(
        "POST", SPROCS, {"id": name, "body": f"function (a, b) {{{START}{body}}}"}
    )
    more = {k.replace("_", "-"): v for k, v in headers.items()}
    return await account.send("POST", f"{SPROCS}/{name}", list(parameters), more, key=key)


async def stored(account: Hand, key: str = "p") -> list[str]:
    found = await account.send("GET", DOCS, key=key)
    return sorted(found.ids)


async def test_a_procedure_does_with_its_items_what_the_docs_say(by_hand: Hand) -> None:
    body = """
      var self = c.getSelfLink(), seen = [];
      var link = c.getAltLink() + "/docs/";
      c.createDocument(self, {id: "1", pk: "p", n: a}, {}, function (e, made) {
        seen.push(made.n);
        made.n = b;
        c.replaceDocument(made._self, made, {etag: made._etag}, function (e, changed) {
          c.upsertDocument(self, {id: "2", pk: "p", n: 9}, function () {
            c.queryDocuments(self, "SELECT VALUE x.n FROM x", {}, function (e, found) {
              seen = seen.concat(found);
              c.deleteDocument(link + "2", {}, function () {
                c.readDocument(link + "2", {}, function (gone) {
                  r.setBody({seen: seen, gone: gone.number});
                });
              });
            });
          });
        });
      });"""
    done = await runs(by_hand, body, 1, 2)
    assert (done.status, done.body) == (200, {"seen": [1, 2, 9], "gone": 404}), done.body
    assert await stored(by_hand) == ["1"]
    assert float(done.headers["x-ms-request-charge"]) > 10


async def test_what_a_procedure_writes_holds_up_others_for_few_statements(
    by_hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script works in a thread, on a store of its own; the account's is the loop's."""
    asked: Counter[str] = Counter()

    def count(name: str) -> None:
        real = getattr(Store, name)

        def counted(store: Store, *given: Any) -> Any:
            asked[current_thread().name] += 1
            return real(store, *given)

        monkeypatch.setattr(Store, name, counted)

    for name in ("run", "run_many", "row", "rows"):
        count(name)
    body = """
      for (var i = 0; i < 1100; i++)
        c.createDocument(c.getSelfLink(), {id: "i" + i, pk: "p"}, {}, function (e) {
          if (e) throw e;
        });"""
    assert (await runs(by_hand, body)).status == 200
    assert len(await stored(by_hand)) == 100
    assert asked["query"] > 1_100
    assert asked["MainThread"] < 40, asked


async def test_a_procedure_is_one_transaction_under_one_lsn(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, {"id": "0", "pk": "p"}, key="p")
    body = (
        "for (var i = 1; i < 4; i++) c.createDocument(c.getSelfLink(), {id: '' + i, pk: 'p'});"
    )
    await runs(by_hand, body)
    feed = await by_hand.feed()
    assert [(x["id"], x["_lsn"]) for x in feed.body["Documents"]] == [
        *[("0", 1), ("1", 2), ("2", 2), ("3", 2)]
    ]
    everything = {"A-IM": "Full-Fidelity Feed", "If-None-Match": '"1"'}
    changes = await by_hand.feed(**everything)
    assert [x["metadata"]["lsn"] for x in changes.body["Documents"]] == [2, 2, 2]


@pytest.mark.parametrize("step", range(4))
async def test_what_throws_at_any_step_has_done_nothing(by_hand: Hand, step: int) -> None:
    await by_hand.send("POST", DOCS, {"id": "kept", "pk": "p"}, key="p")
    body = """
      var at = 0, link = c.getAltLink() + "/docs/kept";
      function next() { if (at++ === a) throw new Error("no more"); }
      next();
      c.createDocument(c.getSelfLink(), {id: "new", pk: "p"}, {}, function () {
        next();
        c.deleteDocument(link, {}, function () {
          next();
          c.createDocument(c.getSelfLink(), {id: "kept", pk: "p", n: 1}, {}, next);
        });
      });"""
    done = await runs(by_hand, body, step)
    assert (done.status, "Error: no more" in done.body["message"]) == (400, True)
    assert await stored(by_hand) == ["kept"]
    assert (await by_hand.feed()).headers["etag"] == '"1"'


async def test_errors_go_to_the_callback_or_end_the_procedure(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
    caught = """
      var found = [];
      function keep(e) { found.push(e ? e.number : 0); r.setBody(found); }
      var self = c.getSelfLink();
      c.createDocument(self, {id: "1", pk: "p"}, {}, keep);
      c.createDocument(self, {id: "2", pk: "q"}, {}, keep);
      c.createDocument(self, {id: "3", pk: "p", s: new Array(3000000).join("x")}, {}, keep);
      c.replaceDocument(c.getAltLink() + "/docs/1", {id: "1", pk: "p"}, {etag: "no"}, keep);
      c.readDocument("dbs/d/colls/other/docs/1", {}, keep);
      c.queryDocuments(self, "SELECT nothing", {}, keep);
      c.createDocument(self, {pk: "p"}, {}, keep);"""
    assert (await runs(by_hand, caught)).body == [409, 400, 413, 412, 400, 400, 0]
    ended = await runs(by_hand, "c.createDocument(c.getSelfLink(), {id: '1', pk: 'p'});")
    assert (ended.status, "already" in ended.body["message"]) == (400, True)


async def test_a_query_of_a_procedure_goes_on_by_its_continuation(by_hand: Hand) -> None:
    for i in range(5):
        await by_hand.send("POST", DOCS, {"id": str(i), "pk": "p"}, key="p")
    body = """
      var pages = [];
      c.createDocument(c.getSelfLink(), {id: "new", pk: "p"}, {}, function () { page(); });
      function page(continuation) {
        var options = {pageSize: 4, continuation: continuation};
        var query = {query: "SELECT * FROM c WHERE c.id != @no",
                     parameters: [{name: "@no", value: "2"}]};
        c.queryDocuments(c.getSelfLink(), query, options, function (e, found, more) {
          pages.push(found.map(x => x.id));
          r.setBody(pages);
          if (more.continuation) page(more.continuation);
        });
      }"""
    assert (await runs(by_hand, body)).body == [["0", "1", "3", "4"], ["new"]]


async def test_unique_keys_hold_inside_and_beside_a_procedure(by_hand: Hand) -> None:
    unique = {"uniqueKeys": [{"paths": ["/mail"]}]}
    key = {"paths": ["/pk"], "kind": "Hash", "version": 2}
    made = {"id": "u", "partitionKey": key, "uniqueKeyPolicy": unique}
    await by_hand.send("POST", "/dbs/d/colls", made)
    docs = "/dbs/d/colls/u/docs"
    await by_hand.send("POST", docs, {"id": "1", "pk": "p", "mail": "a"}, key="p")
    body = """function () {
      var c = getContext().getCollection(), seen = [];
      ["a", "b", "b"].forEach(function (mail, i) {
        c.createDocument(c.getSelfLink(), {id: "x" + i, pk: "p", mail: mail}, {}, function (e) {
          seen.push(e ? e.number : 201);
          getContext().getResponse().setBody(seen);
        });
      });
    }"""
    await by_hand.send("POST", "/dbs/d/colls/u/sprocs", {"id": "s", "body": body})
    ran = await by_hand.send("POST", "/dbs/d/colls/u/sprocs/s", [], key="p")
    assert ran.body == [409, 201, 409]
    again = await by_hand.send("POST", docs, {"id": "2", "pk": "p", "mail": "b"}, key="p")
    assert again.status == 409


async def test_a_log_goes_out_where_it_is_wanted(by_hand: Hand) -> None:
    body = 'console.log("größe", a); console.log({x: 1}); r.setBody(1);'
    wanted = {"x_ms_documentdb_script_enable_logging": "true"}
    done = await runs(by_hand, body, 7, **wanted)
    sent = done.headers["x-ms-documentdb-script-log-results"]
    assert (unquote(sent), done.body) == ('größe 7{"x":1}', 1)
    assert "x-ms-documentdb-script-log-results" not in (await runs(by_hand, body)).headers
    long = await runs(by_hand, "console.log(new Array(100000).join('ä'))", **wanted)
    assert len(long.headers["x-ms-documentdb-script-log-results"]) < 8_000


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("function f( {", 400, "compiled"),
        ("1", 400, "function"),
        ("function f() { f(); }", 400, "call stack"),
        ("function f() { for (var a = [];;) a.push(new Array(1000).fill(1)); }", 400, "memory"),
        ("function f() { throw undefined; }", 400, "Exception"),
        ("function f() { fetch('http://x'); }", 400, "fetch is not defined"),
        ("function f() { require('fs'); }", 400, "require is not defined"),
        ("function f() { __.filter(x => x); }", 400, "queryDocuments"),
        ("function f() { getContext().getResponse().setBody('x'.repeat(5e6)); }", 413, "4 MB"),
        ("async function f() { await 1; throw new Error('late'); }", 400, "late"),
    ],
)
async def test_a_script_that_fails_says_so_and_the_next_one_runs(
    by_hand: Hand, body: str, status: int, words: str
) -> None:
    await by_hand.send("POST", SPROCS, {"id": "s", "body": body})
    done = await by_hand.send("POST", f"{SPROCS}/s", [], key="p")
    assert (done.status, words in done.body["message"]) == (status, True), done.body
    assert (await runs(by_hand, "r.setBody(a + b);", 1, 2)).body == 3


async def test_what_answers_nothing_answers_nothing(by_hand: Hand) -> None:
    for body in ("", "return 1;", "r.setBody(undefined);"):
        done = await runs(by_hand, body)
        assert (done.status, done.body) == (200, None)
    assert (await runs(by_hand, "r.setBody(null);")).status == 200


async def test_3_mb_are_too_large_for_parameters(by_hand: Hand) -> None:
    assert (await runs(by_hand, "r.setBody(a.length);", "x" * 1_900_000)).body == 1_900_000
    assert (await runs(by_hand, "r.setBody(a.length);", "x" * 3_000_000)).status == 413


async def test_a_procedure_needs_a_partition_key_and_a_list(by_hand: Hand) -> None:
    await by_hand.send("POST", SPROCS, {"id": "s", "body": "function () {}"})
    assert (await by_hand.send("POST", f"{SPROCS}/s", [])).status == 400
    assert (await by_hand.send("POST", f"{SPROCS}/s", {}, key="p")).status == 400
    assert (await by_hand.send("POST", f"{SPROCS}/none", [], key="p")).status == 404


async def test_10_000_operations_are_queued_and_done_together(by_hand: Hand) -> None:
    body = """
      var done = 0;
      for (var i = 0; i < 10000; i++) {
        var item = {id: "" + i, pk: "p"};
        c.createDocument(c.getSelfLink(), item, {}, function () { r.setBody(++done); });
      }"""
    done = await runs(by_hand, body)
    count = await by_hand.query("SELECT VALUE COUNT(1) FROM c")
    stored = count.body["Documents"][0]
    if done.status == 200:
        assert stored == done.body == 10_000
    else:  # a busy machine: all or nothing
        assert (done.status, stored) == (408, 0)


async def test_a_script_without_end_holds_up_nobody(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
    body = "c.createDocument(c.getSelfLink(), {id: '2', pk: 'p'}, {}, () => { for (;;); });"
    script = asyncio.create_task(runs(by_hand, body))
    await asyncio.sleep(1)
    reads = 0
    while not script.done():
        assert await stored(by_hand) == ["1"]
        reads += 1
        await asyncio.sleep(0.02)
    assert (await script).status == 408
    assert reads > 2, "they waited for the script"
    assert await stored(by_hand) == ["1"]


async def test_procedures_that_meet_on_an_item_lose_no_write(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, {"id": "1", "pk": "p", "n": 0}, key="p")
    body = """
      var link = c.getAltLink() + "/docs/1";
      c.readDocument(link, {}, function (e, found) {
        found.n += 1;
        c.replaceDocument(link, found, {}, function (e, changed) { r.setBody(changed.n); });
      });"""
    await runs(by_hand, body)
    done = await asyncio.gather(*(runs(by_hand, body) for _ in range(6)))
    worked = [
        x.body for x in done if x.status == 200 and x.body
    ]  # no write of late ones is taken
    read = await by_hand.send("GET", f"{DOCS}/1", key="p")
    assert len(set(worked)) == len(worked)
    assert read.body["n"] == 1 + len(worked)
    assert {x.status for x in done} <= {200, 449}


async def test_a_procedure_without_v8_is_kept_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    async with running() as url, hand(url) as account:
        refused = await runs(account, "")
        assert (refused.status, "cosmos-emulator[scripts]" in refused.body["message"]) == (
            *(400, True),
        )
        assert (await account.send("GET", SPROCS)).body["_count"] == 1
