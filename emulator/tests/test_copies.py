"""How an account is filled: from a seed that people wrote, and from an exact copy."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cosmos_emulator import EmulatorSettings, create_app
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, hand
from emulator.tests.process import ended

ORDERS = {
    "id": "orders",
    "partitionKey": "/customer",
    "throughput": 12_000,
    "items": [{"id": "1", "customer": "anna", "price": 1.0}, {"id": "2"}],
}
SHOP = {"databases": [{"id": "shop", "containers": [ORDERS]}]}
LINES = """
{"database": "shop", "container": {"id": "orders", "partitionKey": ["/customer", "/day"]}}
{"database": "shop", "container": "orders", "item": {"id": "1", "customer": "anna", "day": 5}}
{"database": "empty", "throughput": 400}
"""


async def counted(by_hand: Hand) -> dict[str, int]:
    told = await by_hand.control("GET", "")
    return {
        f"{x['database']}/{x['container']}": sum(y["items"] for y in x["ranges"]) for x in told
    }


async def test_a_seed_fills_an_account_and_a_reset_goes_back_to_it(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(SHOP))
    settings = EmulatorSettings(port=0, seed=tmp_path / "shop.json")
    async with running(settings) as url, hand(url) as by_hand:
        shop = "/dbs/shop/colls/orders"
        ranges = await by_hand.send("GET", f"{shop}/pkranges")
        assert ranges.body["_count"] > 1
        got = await by_hand.send("GET", f"{shop}/docs/1", key="anna")
        assert (got.body["price"], type(got.body["price"])) == (1.0, float)
        await by_hand.send("DELETE", f"{shop}/docs/1", key="anna")
        await by_hand.control("POST", "reset")
        assert await counted(by_hand) == {"shop/orders": 2}


async def test_a_directory_of_seeds_fills_an_account_that_is_empty(tmp_path: Path) -> None:
    seeds, data = tmp_path / "seeds", tmp_path / "data"
    seeds.mkdir()
    (seeds / "1.jsonl").write_text(LINES)
    (seeds / "2.json").write_text(json.dumps({"databases": [{"id": "last"}]}))
    settings = EmulatorSettings(port=0, seed=seeds, data=data)
    async with running(settings) as url, hand(url) as by_hand:
        listed = (await by_hand.send("GET", "/dbs")).body["Databases"]
        assert [x["id"] for x in listed] == ["d", "empty", "last", "shop"]
        path = "/dbs/shop/colls/orders/docs/1"
        key = {"x-ms-documentdb-partitionkey": '["anna", 5]'}
        assert (await by_hand.send("DELETE", path, headers=key)).status == 204
    async with running(settings) as url, hand(url) as by_hand:
        assert (await counted(by_hand))["shop/orders"] == 0


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("a.jsonl", LINES + '{"database": "shop", "item": {}}', "a.jsonl, line 5: "),
        ("a.jsonl", LINES + '{"database": "shop", "container": "orders", "item": {}}', "id"),
        ("a.jsonl", LINES * 2, "a.jsonl, line 6: "),
        ("a.jsonl", '{"database": "x", "container": "y", "item": {"id": "1"}}', "'x'"),
        ("a.json", '{"databases": [{"id": "a/b"}]}', "a/b"),
        (
            "a.json",
            '{"databases": [{"id": "x", "containers": [{"id": "y"}]}]}',
            "partition key",
        ),
        (
            "a.json",
            json.dumps({"databases": [{"id": "x", "containers": [ORDERS | {"items": 5}]}]}),
            "array",
        ),
        ("a.json", "{", "a.json"),
        ("a.txt", "", "a.txt"),
    ],
)
def test_a_seed_with_a_mistake_is_refused_whole(
    tmp_path: Path, name: str, text: str, advice: str
) -> None:
    (tmp_path / name).write_text(text)
    code, said = ended(tmp_path, "--port=0", "--data=kept", f"--seed={name}")
    assert (code, advice in said, "Traceback" in said) == (2, True, False), said
    with pytest.raises(ValueError, match=name):
        create_app(EmulatorSettings(seed=tmp_path / name))
    (tmp_path / "good.json").write_text(json.dumps(SHOP))
    create_app(EmulatorSettings(data=tmp_path / "kept", seed=tmp_path / "good.json"))


async def everything(by_hand: Hand) -> list[Any]:
    """Return what a client sees: definitions, ranges, items, feeds, tokens, throughput."""
    paths = ("/dbs", "/dbs/d/colls", "/dbs/d/colls/c/pkranges", DOCS, "/offers")
    rows = [(await by_hand.send("GET", x)).body for x in paths]
    rows.append((await by_hand.send("GET", "/dbs/d/users/anna/permissions")).body["_count"])
    for one in (await by_hand.send("GET", "/dbs/d/colls/c/pkranges")).body[
        "PartitionKeyRanges"
    ]:
        all_versions = {"A_IM": "Full-Fidelity Feed"}
        rows.append((await by_hand.feed(range_=one["id"])).body)
        rows.append((await by_hand.feed('"0"', one["id"], **all_versions)).body)
    return rows


@pytest.mark.parametrize("is_kept", [False, True])
async def test_an_import_is_what_was_exported_to_the_last_etag(
    tmp_path: Path, *, is_kept: bool
) -> None:
    data = tmp_path / "data" if is_kept else None
    async with running(EmulatorSettings(port=0, data=data)) as url, hand(url) as by_hand:
        for name in "abcdefgh":
            await by_hand.send("POST", DOCS, {"id": name, "pk": name}, key=name)
        await by_hand.split()
        await by_hand.send("DELETE", f"{DOCS}/a", key="a")
        await by_hand.send("POST", "/dbs/d/users", {"id": "anna"})
        allowed = {"id": "all", "permissionMode": "All", "resource": "dbs/d/colls/c"}
        made = await by_hand.send("POST", "/dbs/d/users/anna/permissions", allowed)
        was = await everything(by_hand)
        code, said = await export(tmp_path, "export", url)
        assert (code, said) == (0, "")
    async with running(EmulatorSettings(port=0, data=data)) as url, hand(url) as by_hand:
        await by_hand.control("POST", "reset")
        code, said = await export(tmp_path, "import", url)
        assert (code, said) == (0, "")
        assert await everything(by_hand) == was
        token = {"Authorization": made.body["_token"].replace("=", "%3D")}
        assert (await by_hand.send("GET", DOCS, headers=token)).status == 200
        new = await by_hand.send("POST", DOCS, {"id": "a", "pk": "a"}, key="a")
        assert new.status == 201
        assert new.body["_rid"] not in str(was)


async def test_what_is_no_export_is_refused_and_changes_nothing(
    tmp_path: Path, by_hand: Hand
) -> None:
    (tmp_path / "account").write_bytes(b"{}")
    code, said = await export(tmp_path, "import", by_hand.url)
    assert (code, "no export" in said, "Traceback" in said) == (2, True, False), said
    code, said = await export(tmp_path, "import", "http://127.0.0.1:1/")
    assert (code, "127.0.0.1:1" in said, "Traceback" in said) == (2, True, False), said
    assert await counted(by_hand) == {"d/c": 0}


async def export(cwd: Path, verb: str, url: str) -> tuple[int, str]:
    return await asyncio.to_thread(ended, cwd, verb, "account", f"--url={url}")
