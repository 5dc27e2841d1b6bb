"""Physical ranges: how they are listed, split and merged, and what readers see of it."""

import asyncio
from collections import Counter

from azure.cosmos.aio import CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY, EmulatorSettings
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, container, hand

RANGES = "/dbs/d/colls/c/pkranges"
INCREMENTAL = {"A-IM": "Incremental Feed"}
MIDDLE = "1" + "F" * 31


async def fill(by_hand: Hand, numbers: range) -> None:
    for i in numbers:
        made = await by_hand.send("POST", DOCS, {"id": f"{i}", "pk": f"k{i}"}, key=f"k{i}")
        assert made.status == 201


async def test_only_ranges_that_came_since_the_etag_are_listed_and_then_304(
    by_hand: Hand,
) -> None:
    first = await by_hand.send("GET", RANGES, headers=INCREMENTAL)
    seen = INCREMENTAL | {"If-None-Match": first.headers["etag"]}
    end = await by_hand.send("GET", RANGES, headers=seen)
    assert (end.status, end.headers["etag"]) == (304, first.headers["etag"])
    await by_hand.split()
    after = await by_hand.send("GET", RANGES, headers=seen)
    found = after.body["PartitionKeyRanges"]
    assert [(x["id"], x["parents"], x["minInclusive"]) for x in found] == [
        ("1", ["0"], ""),
        ("2", ["0"], MIDDLE),
    ]
    seen = INCREMENTAL | {"If-None-Match": after.headers["etag"]}
    assert (await by_hand.send("GET", RANGES, headers=seen)).status == 304
    await by_hand.split(range="1")
    again = await by_hand.send("GET", RANGES, headers=seen)
    found = again.body["PartitionKeyRanges"]
    assert [(x["id"], x["parents"]) for x in found] == [("3", ["0", "1"]), ("4", ["0", "1"])]


async def test_children_go_on_with_the_lsns_of_their_parent(by_hand: Hand) -> None:
    await fill(by_hand, range(8))
    assert (await by_hand.feed()).headers["etag"] == '"8"'
    low, high = await by_hand.split()
    assert (low["lsn"], high["lsn"]) == (8, 8)
    assert low["items"] + high["items"] == 8
    first = await by_hand.feed(range_="1")
    second = await by_hand.feed(range_="2")
    assert sorted(first.ids + second.ids) == [str(i) for i in range(8)]
    assert first.ids
    assert second.ids
    assert [x["_lsn"] - 1 for x in first.body["Documents"]] == [int(x) for x in first.ids]
    now = await by_hand.feed('"8"', range_="2")
    assert (now.status, now.headers["x-ms-session-token"]) == (304, "2:0#8")
    await fill(by_hand, range(8, 16))
    for name in ("1", "2"):
        new = (await by_hand.feed('"8"', range_=name)).body["Documents"]
        assert [x["_lsn"] for x in new] == list(range(9, 9 + len(new)))


async def test_an_old_range_answers_1007_while_it_splits_and_1002_afterwards(
    by_hand: Hand,
) -> None:
    await fill(by_hand, range(2))
    splitting = asyncio.create_task(by_hand.split(seconds=0.3))
    await asyncio.sleep(0.1)
    during = await by_hand.feed()
    assert (during.status, during.substatus) == (410, 1007)
    write = asyncio.create_task(by_hand.send("POST", DOCS, {"id": "x", "pk": "p"}, key="p"))
    await asyncio.sleep(0.1)
    assert not write.done()  # it names no range, so it waits
    await splitting
    async with asyncio.timeout(60):
        assert (await write).status == 201
    after = await by_hand.feed()
    assert (after.status, after.substatus) == (410, 1002)


async def test_a_split_that_makes_no_sense_is_refused(by_hand: Hand) -> None:
    await by_hand.split()
    for path, body, status in (
        ("split", {"range": "0"}, 410),
        ("split", {"range": "1", "at": "3F"}, 400),
        ("split", {}, 400),
        ("split", {"seconds": -1, "range": "1"}, 400),
        ("split", {"wrong": 1}, 400),
        ("merge", {"ranges": ["1"]}, 400),
        ("merge", {"ranges": ["1", "1"]}, 400),
    ):
        where = {"database": "d", "container": "c"}
        url = f"{by_hand.url}_emulator/{path}"
        async with by_hand.session.post(url, json=where | body) as got:
            assert got.status == status, (body, await got.text())


async def test_a_range_splits_when_it_has_grown_too_large() -> None:
    settings = EmulatorSettings(port=0, split_at_items=10)
    async with running(settings) as url, hand(url) as by_hand:
        await fill(by_hand, range(25))
        (told,) = await by_hand.control("GET", "")
        living = [x for x in told["ranges"] if not x["gone"]]
        assert len(living) >= 3
        assert all(x["items"] <= 10 for x in living)
        assert sum(x["items"] for x in living) == 25
        for i in range(12):  # one key cannot be cut
            await by_hand.send("POST", DOCS, {"id": f"same{i}", "pk": "same"}, key="same")
        all_of_them = await by_hand.query_everywhere("SELECT VALUE c.id FROM c", 1000)
        assert len(all_of_them.body["Documents"]) == 37


async def test_after_a_merge_the_version_is_up_and_both_continuations_go_on(
    by_hand: Hand,
) -> None:
    await by_hand.split()
    await fill(by_hand, range(20))
    seen = Counter[str]()
    positions = {}
    for name in ("1", "2"):
        got = await by_hand.feed(range_=name, x_ms_max_item_count="3")
        seen.update(got.ids)
        positions[name] = got.headers["etag"]
    merged = await by_hand.merge("1", "2")
    assert (merged["version"], merged["parents"]) == (1, ["0", "1", "2"])
    assert (merged["low"], merged["high"], merged["items"]) == ("", "FF", 20)
    assert (await by_hand.feed(range_="1")).substatus == 1002
    await fill(by_hand, range(20, 30))
    for name, low, high in (("1", "", MIDDLE), ("2", MIDDLE, "FF")):
        bounds = {"x_ms_start_epk": low, "x_ms_end_epk": high}
        got = await by_hand.feed(positions[name], range_=merged["id"], **bounds)
        seen.update(got.ids)
    assert seen == Counter(str(i) for i in range(30))
    whole = await by_hand.feed(range_=merged["id"])
    lsns = [x["_lsn"] for x in whole.body["Documents"]]
    assert lsns == sorted(lsns)
    assert whole.headers["x-ms-session-token"] == f"3:1#{lsns[-1]}"


async def test_writes_go_on_while_ranges_split(url: str, by_hand: Hand) -> None:
    async with CosmosClient(url, DEVELOPMENT_KEY) as client:
        items = await container(client)

        async def write(numbers: range) -> None:
            for i in numbers:
                await items.create_item({"id": str(i), "pk": f"k{i}"})

        async with asyncio.TaskGroup() as group:
            for start in (0, 100, 200):
                group.create_task(write(range(start, start + 40)))
            await by_hand.split(seconds=0.05)
            await by_hand.split(range="1", seconds=0.05)
        all_of_them = await by_hand.query_everywhere("SELECT VALUE c.id FROM c", 1000)
        assert len(all_of_them.body["Documents"]) == 120


async def test_a_client_that_has_seen_more_than_there_is_is_told_so(by_hand: Hand) -> None:
    await fill(by_hand, range(1))
    known = {"x-ms-session-token": "0:0#1"}
    assert (await by_hand.send("GET", DOCS + "/0", headers=known, key="k0")).status == 200
    ahead = {"x-ms-session-token": "0:0#2"}
    got = await by_hand.send("GET", DOCS + "/0", headers=ahead, key="k0")
    assert (got.status, got.substatus) == (404, 1002)
