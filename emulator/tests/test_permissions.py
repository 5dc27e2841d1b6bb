"""Users and permissions: a token opens what it names, as its mode says, until it expires."""

from collections.abc import Mapping
from typing import Any

import pytest
import pytest_asyncio
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from emulator.tests.by_hand import DOCS, Hand, Reply

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


async def test_the_real_client_works_with_a_token(account: Hand) -> None:
    reader = await token(account, "Read")
    async with CosmosClient(account.url, {"dbs/d/colls/c": reader}) as client:
        items = client.get_database_client("d").get_container_client("c")
        assert (await items.read_item("1", "p"))["id"] == "1"
        assert [x["id"] async for x in items.query_items("SELECT * FROM c")] == ["1"]
        with pytest.raises(CosmosHttpResponseError) as refused:
            await items.create_item({"id": "2", "pk": "p"})
        assert refused.value.status_code == 403
