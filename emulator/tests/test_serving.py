"""The process: what survives it, who may have its directory, and TLS."""

import asyncio
from pathlib import Path

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY, DirectoryInUse, EmulatorSettings, create_app
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, container, hand
from emulator.tests.process import process


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    done: list[str] = []
    async with process(tmp_path, "--data=kept") as (victim, url), hand(url) as by_hand:
        some, more = asyncio.Event(), asyncio.Event()

        async def write(writer: int) -> None:
            for i in range(1000):
                name = f"{writer}-{i}"
                body = {"id": name, "pk": name}
                if (await by_hand.send("POST", DOCS, body, key=name)).status == 201:
                    done.append(name)
                    if len(done) == 30:
                        some.set()
                    elif len(done) == 60:
                        more.set()

        writers = [asyncio.create_task(write(x)) for x in range(4)]
        await some.wait()
        await by_hand.split()
        await more.wait()
        victim.kill()
        await asyncio.wait(writers)
        assert all(x.exception() for x in writers)
    async with process(tmp_path, "--data=kept") as (_, url), hand(url) as by_hand:
        told = await by_hand.control("GET", "")
        lows = [x for x in told[0]["ranges"] if not x["gone"]]
        found, etags = [], {}
        for one in lows:
            got = await by_hand.feed(range_=one["id"], x_ms_max_item_count="-1")
            found += got.ids
            etags[one["id"]] = got.headers["etag"]
        assert set(done) <= set(found)
        assert len(found) <= len(done) + 4  # of each writer one may be unanswered
        assert sorted(found) == sorted(set(found))
        assert sum(x["items"] for x in lows) == len(found)
        assert (await by_hand.send("POST", DOCS, {"id": "n", "pk": "n"}, key="n")).status == 201
        new = [await by_hand.feed(etags[x["id"]], range_=x["id"]) for x in lows]
        assert [x.ids for x in new if x.ids] == [["n"]]


async def test_a_directory_belongs_to_one_emulator(tmp_path: Path) -> None:
    settings = EmulatorSettings(port=0, data=tmp_path / "kept")
    async with process(tmp_path, "--data=kept"):
        with pytest.raises(DirectoryInUse, match="another directory"):
            create_app(settings)
    async with running(settings) as url, hand(url) as by_hand:
        await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
    async with running(settings) as url, hand(url) as by_hand:
        assert (await by_hand.feed()).ids == ["1"]


async def test_a_key_that_is_no_key_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="must be base64"):
        create_app(EmulatorSettings(key="not base64!"))


async def test_with_tls_the_real_client_talks_https(tmp_path: Path) -> None:
    settings = EmulatorSettings(port=0, tls=True, data=tmp_path)
    async with running(settings) as url:
        assert url.startswith("https://127.0.0.1:")
        async with CosmosClient(url, DEVELOPMENT_KEY) as client:
            items = await container(client)
            await items.create_item({"id": "1", "pk": "p"})
            assert [x["id"] async for x in items.read_all_items()] == ["1"]
    made = (tmp_path / "emulator.pem").read_bytes()
    assert (tmp_path / "emulator.pem").stat().st_mode & 0o077 == 0
    async with running(settings):
        assert (tmp_path / "emulator.pem").read_bytes() == made
