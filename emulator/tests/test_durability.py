"""What the emulator has acknowledged is there after a kill, and after a disk that was full."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cosmos_emulator import EmulatorSettings, calls
from cosmos_emulator.store import Store
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, hand
from emulator.tests.process import process

_BULK = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "False"}
_ATOMIC = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
_IN_A_BATCH = 25


class Writer:
    """Writes in bulk and in batches until it is cut off; knows what was acknowledged."""

    def __init__(self, by_hand: Hand, round_: int, number: int) -> None:
        self._by_hand = by_hand
        self._name = f"{round_}-{number}"
        self.in_bulk: list[str] = []
        self.batches: list[list[str]] = []
        self.unclear: list[str] = []

    async def run(self) -> None:
        for n in range(10_000):
            names = [f"{self._name}-{n}-{i}" for i in range(_IN_A_BATCH)]
            try:
                await (self._write_in_bulk(names) if n % 2 else self._write_batch(names))
            except aiohttp.ClientError:
                self.unclear = names
                return

    async def _write_in_bulk(self, names: Sequence[str]) -> None:
        operations = [
            {
                "operationType": "Create",
                "resourceBody": {"id": x, "pk": x},
                "partitionKey": f'["{x}"]',
            }
            for x in names
        ]
        header = {"x-ms-documentdb-partitionkeyrangeid": "0"}
        got = await self._by_hand.send("POST", DOCS, operations, _BULK | header)
        self.in_bulk += [
            x for x, y in zip(names, got.body, strict=True) if y["statusCode"] == 201
        ]

    async def _write_batch(self, names: Sequence[str]) -> None:
        key = names[0]
        operations = [
            {"operationType": "Create", "resourceBody": {"id": x, "pk": key}} for x in names
        ]
        got = await self._by_hand.send("POST", DOCS, operations, _ATOMIC, key=key)
        if got.status == 200:
            self.batches.append(list(names))


async def read_whole(by_hand: Hand) -> tuple[set[str], list[dict[str, Any]]]:
    """Return the ids that queries find, and the change feed from its beginning."""
    found: list[str] = (await by_hand.query("SELECT VALUE c.id FROM c", 100_000)).body[
        "Documents"
    ]
    changes: list[dict[str, Any]] = []
    after = None
    while (page := await by_hand.feed(after, x_ms_max_item_count="1000")).status == 200:
        changes += page.body["Documents"]
        after = page.headers["etag"]
    assert len(found) == len(set(found))
    return set(found), changes


async def test_bulk_writes_that_a_kill_cuts_off_lose_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    chance = random.Random(5)
    writers: list[Writer] = []
    for round_ in range(4):
        async with process(tmp_path, "--data=kept") as (victim, url), hand(url) as by_hand:
            these = [Writer(by_hand, round_, x) for x in range(4)]
            running_ = [asyncio.create_task(x.run()) for x in these]
            await asyncio.sleep(0.5 + chance.random() / 2)
            victim.kill()
            await asyncio.gather(*running_)
            writers += these
    async with process(tmp_path, "--data=kept") as (_, url), hand(url) as by_hand:
        found, changes = await read_whole(by_hand)
        (told,) = await by_hand.control("GET", "")
    acknowledged = {x for w in writers for batch in (w.in_bulk, *w.batches) for x in batch}
    assert len(acknowledged) > 20 * _IN_A_BATCH
    assert acknowledged <= found
    assert found - acknowledged <= {x for w in writers for x in w.unclear}
    assert {x["id"] for x in changes} == found
    assert len(changes) == len(found)
    lsns = [x["_lsn"] for x in changes]
    assert lsns == sorted(lsns)
    assert told["ranges"][0]["items"] == len(found)
    by_lsn: dict[int, set[str]] = {}
    for change in changes:
        by_lsn.setdefault(change["_lsn"], set()).add(change["id"])
    assert {len(x) for x in by_lsn.values()} == {1, _IN_A_BATCH}  # no half of a batch


async def test_a_disk_that_was_full_is_written_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores: list[Store] = []

    class Limited(Store):
        def __init__(self, directory: Path | None = None) -> None:
            super().__init__(directory)
            stores.append(self)

    def limit_pages(most: int) -> None:
        stores[-1].row(f"PRAGMA max_page_count = {most}")

    monkeypatch.setattr(calls, "Store", Limited)
    async with running(EmulatorSettings(port=0, data=tmp_path)) as url, hand(url) as by_hand:
        item = {"id": "a", "pk": "p", "text": "x" * 100_000}
        assert (await by_hand.send("POST", DOCS, item, key="p")).status == 201
        limit_pages(1)
        refused = [
            (await by_hand.send("POST", DOCS, item | {"id": f"b{n}"}, key="p")).status
            for n in range(20)
        ]
        assert 507 in refused
        assert (await by_hand.send("GET", f"{DOCS}/a", key="p")).status == 200
        limit_pages(2**30)
        assert (await by_hand.send("POST", DOCS, item | {"id": "c"}, key="p")).status == 201
        found, changes = await read_whole(by_hand)
    written = {f"b{n}" for n, status in enumerate(refused) if status == 201}
    assert found == {"a", "c", *written}
    assert {x["id"] for x in changes} == found
