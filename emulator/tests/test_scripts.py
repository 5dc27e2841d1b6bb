"""Scripts of a container, as it keeps them: with V8 or without."""

import base64
from pathlib import Path

import pytest

from cosmos_emulator import EmulatorSettings
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, hand

CONTAINER = "/dbs/d/colls/c"
QUERY = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
KINDS = {
    "sprocs": ("StoredProcedures", 8),
    "triggers": ("Triggers", 7),
    "udfs": ("UserDefinedFunctions", 6),
}


def script(name: str, body: str = "function f() {}") -> dict[str, str]:
    return {"id": name, "body": body, "triggerType": "Pre", "triggerOperation": "All"}


@pytest.mark.parametrize("kind", KINDS)
async def test_scripts_are_made_found_replaced_and_deleted(by_hand: Hand, kind: str) -> None:
    listed, type_bits = KINDS[kind]
    path = f"{CONTAINER}/{kind}"
    made = await by_hand.send("POST", path, script("s"))
    assert made.status == 201
    assert made.headers["etag"] == made.body["_etag"]
    assert base64.b64decode(made.body["_rid"].replace("-", "/"))[15] >> 4 == type_bits
    assert (await by_hand.send("POST", path, script("s"))).status == 409
    owner = (await by_hand.send("GET", CONTAINER)).body["_rid"]
    database = (await by_hand.send("GET", "/dbs/d")).body["_rid"]
    by_rid = f"/dbs/{database}/colls/{owner}/{kind}/{made.body['_rid']}"
    assert made.body["_self"] == f"{by_rid[1:]}/"
    found = await by_hand.send("GET", f"{path}/s")
    assert found.body == made.body
    assert [x["id"] for x in (await by_hand.send("GET", path)).body[listed]] == ["s"]
    text = {"query": "SELECT * FROM c WHERE c.id = 's'"}
    assert (await by_hand.send("POST", path, text, QUERY)).body["_count"] == 1
    changed = script("s", "function g() {}")
    stale = {"If-Match": '"other"'}
    assert (await by_hand.send("PUT", f"{path}/s", changed, stale)).status == 412
    fresh = {"If-Match": made.body["_etag"]}
    changed_to = await by_hand.send("PUT", f"{path}/s", changed, fresh)
    assert (changed_to.body["body"], changed_to.body["_rid"]) == (
        "function g() {}",
        made.body["_rid"],
    )
    assert (await by_hand.send("DELETE", f"{path}/s")).status == 204
    assert (await by_hand.send("GET", f"{path}/s")).status == 404


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("sprocs", {"id": "s"}),
        ("udfs", {"id": "s", "body": 1}),
        ("triggers", {"id": "s", "body": "function f() {}"}),
        ("triggers", script("s") | {"triggerType": "During"}),
        ("triggers", script("s") | {"triggerOperation": "Read"}),
        ("sprocs", {"body": "function f() {}"}),
    ],
)
async def test_a_script_of_no_shape_is_refused(
    by_hand: Hand, kind: str, wrong: dict[str, str]
) -> None:
    path = f"{CONTAINER}/{kind}"
    assert (await by_hand.send("POST", path, wrong)).status == 400
    assert (await by_hand.send("GET", path)).body["_count"] == 0


async def test_scripts_survive_a_restart_and_go_with_their_container(tmp_path: Path) -> None:
    settings = EmulatorSettings(data=tmp_path, port=0)
    async with running(settings) as url, hand(url) as account:
        await account.send("POST", f"{CONTAINER}/udfs", script("first"))
    async with running(settings) as url, hand(url) as account:
        await account.send("POST", f"{CONTAINER}/udfs", script("second"))
        listed = await account.send("GET", f"{CONTAINER}/udfs")
        assert [x["id"] for x in listed.body["UserDefinedFunctions"]] == ["first", "second"]
        await account.send("DELETE", CONTAINER)
    async with running(settings) as url, hand(url) as account:  # which makes it again
        assert (await account.send("GET", f"{CONTAINER}/udfs")).body["_count"] == 0
        assert (await account.send("GET", DOCS)).body["_count"] == 0
