"""Users and permissions: a token opens what it names, as its mode says, until it expires."""

import base64
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio
from azure.core.credentials import AccessToken
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_emulator import DEVELOPMENT_KEY, EmulatorSettings
from cosmos_emulator.errors import CosmosError
from cosmos_emulator.permissions import Principal, opened_by, token_for
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, Reply, container, entra_token

USERS = "/dbs/d/users"
ITEM = {"id": "1", "pk": "p"}


@pytest_asyncio.fixture
async def account(by_hand: Hand) -> Hand:
    """An account with a user ``u``, an item in ``c``, and another container ``other``."""
    assert (await by_hand.send("POST", USERS, {"id": "u"})).status == 201
    assert (await by_hand.send("POST", DOCS, ITEM, key="p")).status == 201
    other = {"id": "other", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    assert (await by_hand.send("POST", "/dbs/d/colls", other)).status == 201
    return by_hand


async def token(account: Hand, mode: str, seconds: int = 3600, **more: Any) -> str:
    body = {"id": f"p-{mode}", "permissionMode": mode, "resource": "dbs/d/colls/c", **more}
    headers = {"x-ms-documentdb-expiry-seconds": str(seconds)}
    made = await account.send("POST", f"{USERS}/u/permissions", body, headers)
    assert made.status == 201, made.body
    return str(made.body["_token"])


async def with_token(
    account: Hand,
    opened_by: str,
    verb: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    key: str | None = None,
) -> Reply:
    sent = {"Authorization": opened_by, **(headers or {})}
    return await account.send(verb, path, body, sent, key=key)


async def test_users_and_permissions_are_made_listed_replaced_and_deleted(
    account: Hand,
) -> None:
    permissions = f"{USERS}/u/permissions"
    await token(account, "Read")
    assert (await account.send("POST", USERS, {"id": "u"})).status == 409
    assert [x["id"] for x in (await account.send("GET", USERS)).body["Users"]] == ["u"]
    listed = (await account.send("GET", permissions)).body["Permissions"]
    assert [(x["id"], x["permissionMode"]) for x in listed] == [("p-Read", "Read")]
    changed = {"id": "p-Read", "permissionMode": "All", "resource": "dbs/d/colls/c"}
    assert (await account.send("PUT", f"{permissions}/p-Read", changed)).status == 200
    found = await account.send("GET", f"{permissions}/p-Read")
    assert found.body["permissionMode"] == "All"
    query = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
    text = {"query": "SELECT * FROM c WHERE c.id = 'p-Read'", "parameters": []}
    for path, name in ((permissions, "Permissions"), (USERS, "Users")):
        found = await account.send("POST", path, text, query)
        assert len(found.body[name]) == (name == "Permissions")
    wrong = {"id": "x", "permissionMode": "Some", "resource": "dbs/d/colls/c"}
    assert (await account.send("POST", permissions, wrong)).status == 400
    assert (await account.send("PUT", f"{USERS}/u", {"id": "v"})).body["id"] == "v"
    assert (await account.send("DELETE", f"{USERS}/v/permissions/p-Read")).status == 204
    assert (await account.send("DELETE", f"{USERS}/v")).status == 204
    assert (await account.send("GET", f"{USERS}/v")).status == 404


async def test_a_reader_reads_its_container_and_nothing_else(account: Hand) -> None:
    reader = await token(account, "Read")
    assert (await with_token(account, reader, "GET", f"{DOCS}/1", key="p")).status == 200
    assert (await with_token(account, reader, "GET", "/dbs/d/colls/c")).status == 200
    written = await with_token(account, reader, "POST", DOCS, {"id": "2", "pk": "p"}, key="p")
    assert written.status == 403
    for path in ("/dbs/d/colls/other", "/dbs/d", "/dbs", USERS):
        assert (await with_token(account, reader, "GET", path)).status == 403, path


async def test_who_may_do_all_writes_and_does_not_delete_the_container(account: Hand) -> None:
    writer = await token(account, "All")
    written = await with_token(account, writer, "POST", DOCS, {"id": "2", "pk": "p"}, key="p")
    assert written.status == 201
    other = "/dbs/d/colls/other/docs"
    written = await with_token(account, writer, "POST", other, {"id": "2", "pk": "p"}, key="p")
    assert written.status == 403
    assert (await with_token(account, writer, "DELETE", "/dbs/d/colls/c")).status == 403


async def test_a_token_of_one_key_opens_no_other(account: Hand) -> None:
    writer = await token(account, "All", resourcePartitionKey=["p"])
    assert (await with_token(account, writer, "GET", f"{DOCS}/1", key="p")).status == 200
    assert (await with_token(account, writer, "GET", f"{DOCS}/1", key="q")).status == 403
    query = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
    wide = query | {"x-ms-documentdb-query-enablecrosspartition": "True"}
    body = {"query": "SELECT * FROM c", "parameters": []}
    assert (await with_token(account, writer, "POST", DOCS, body, headers=wide)).status == 403
    assert (
        await with_token(account, writer, "POST", DOCS, body, headers=query, key="p")
    ).status == 200


async def test_a_token_of_one_item_opens_no_other(account: Hand) -> None:
    reader = await token(account, "Read", resource="dbs/d/colls/c/docs/1")
    assert (await with_token(account, reader, "GET", f"{DOCS}/1", key="p")).status == 200
    assert (await with_token(account, reader, "GET", f"{DOCS}/2", key="p")).status == 403
    assert (await with_token(account, reader, "GET", DOCS)).status == 403


async def test_a_token_ends_with_its_time_its_permission_or_a_change_of_a_letter(
    account: Hand,
) -> None:
    reader = await token(account, "Read")
    forged = reader.replace("sig=", "sig=A", 1)
    assert (await with_token(account, forged, "GET", f"{DOCS}/1", key="p")).status == 401
    await account.send("DELETE", f"{USERS}/u/permissions/p-Read")
    assert (await with_token(account, reader, "GET", f"{DOCS}/1", key="p")).status == 403
    for seconds in (0, 86_401):
        with pytest.raises(AssertionError, match="expiry"):
            await token(account, "Read", seconds)


def test_a_token_opens_nothing_when_its_time_is_over() -> None:
    made = Principal(rid="r", id="p", ts=0, etag="", link="", definition=None)
    issued = token_for(made, b"key", expires=1000)
    assert opened_by(issued, b"key", 999) == "r"
    with pytest.raises(CosmosError, match="expired") as refused:
        opened_by(issued, b"key", 1000)
    assert refused.value.status == 403


async def test_a_user_has_one_permission_of_a_resource_and_key(account: Hand) -> None:
    await token(account, "Read")
    with pytest.raises(AssertionError, match="already"):
        await token(account, "All")
    await token(account, "All", resourcePartitionKey=["p"])


async def with_entra(account: Hand, made: str, verb: str, path: str, body: Any = None) -> Reply:
    key = "p" if "/docs" in path else None
    return await with_token(account, f"type=aad&ver=1.0&sig={made}", verb, path, body, key=key)


async def test_the_entra_token_of_emulators_works_with_items_and_manages_nothing(
    account: Hand,
) -> None:
    made = entra_token()
    new = {"id": "2", "pk": "p"}
    assert (await with_entra(account, made, "POST", DOCS, new)).status == 201
    for path in (f"{DOCS}/2", "/dbs", "/dbs/d", "/dbs/d/colls/c", "/dbs/d/colls/c/pkranges"):
        assert (await with_entra(account, made, "GET", path)).status == 200, path
    for verb, path in (
        ("POST", "/dbs"),
        ("DELETE", "/dbs/d/colls/c"),
        ("GET", USERS),
        ("POST", f"{USERS}/u/permissions"),
        ("GET", "/offers"),
    ):
        refused = await with_entra(account, made, verb, path, {"id": "x"})
        assert (path, refused.status, refused.substatus) == (path, 403, 5300)


@pytest.mark.parametrize(
    "wrong",
    [
        entra_token(base64.b64encode(b"another").decode()),
        entra_token(ends=-1),
        entra_token(begins=3600),
        "",
        "a.b",
        ".%%%." + entra_token().rpartition(".")[2],
    ],
)
async def test_any_other_entra_token_is_refused(account: Hand, wrong: str) -> None:
    assert (await with_entra(account, wrong, "GET", f"{DOCS}/1")).status == 401


class EmulatorCredential:
    """What Azure's clients take a token from."""

    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(entra_token(), int(time.time()) + 60)

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


async def test_the_real_client_signs_in_with_the_token_of_emulators(tmp_path: Path) -> None:
    settings = EmulatorSettings(port=0, tls=True, data=tmp_path)
    async with running(settings) as url:
        async with CosmosClient(url, DEVELOPMENT_KEY) as owner:
            await (await container(owner)).create_item(ITEM)
        async with CosmosClient(url, EmulatorCredential()) as client:
            items = client.get_database_client("d").get_container_client("c")
            assert (await items.read_item("1", "p"))["id"] == "1"
            with pytest.raises(CosmosHttpResponseError) as refused:
                await client.create_database("more")
            assert refused.value.status_code == 403


async def test_the_real_client_works_with_a_token(account: Hand) -> None:
    reader = await token(account, "Read")
    async with CosmosClient(account.url, {"dbs/d/colls/c": reader}) as client:
        items = client.get_database_client("d").get_container_client("c")
        assert (await items.read_item("1", "p"))["id"] == "1"
        assert [x["id"] async for x in items.query_items("SELECT * FROM c")] == ["1"]
        with pytest.raises(CosmosHttpResponseError) as refused:
            await items.create_item({"id": "2", "pk": "p"})
        assert refused.value.status_code == 403


async def test_an_upsert_of_a_user_or_permission_replaces_the_one_of_its_id(
    by_hand: Hand,
) -> None:
    upsert = {"x-ms-documentdb-is-upsert": "true"}
    users, permissions = "/dbs/d/users", "/dbs/d/users/u/permissions"
    allowed = {"id": "p", "permissionMode": "Read", "resource": "dbs/d/colls/c"}
    for path, body in ((users, {"id": "u"}), (permissions, allowed)):
        made = await by_hand.send("POST", path, body, upsert)
        # Node's client writes modes in lower case.
        again = await by_hand.send("POST", path, body | {"permissionMode": "all"}, upsert)
        assert (made.status, again.status) == (201, 200)
        assert made.body["_rid"] == again.body["_rid"]
        assert (await by_hand.send("POST", path, body)).status == 409
        stale = upsert | {"If-Match": made.headers["etag"]}
        assert (await by_hand.send("POST", path, body, stale)).status == 412
    kept = (await by_hand.send("GET", f"{permissions}/p")).body
    assert kept["permissionMode"] == "All"
