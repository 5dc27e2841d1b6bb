"""The process: what survives it, who may have its directory, and TLS."""

import asyncio
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY, DirectoryInUse, EmulatorSettings, create_app
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, container, hand
from emulator.tests.process import ended, process


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
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        where = f"{url}_explorer/emulator.pem"
        async with (
            aiohttp.ClientSession() as session,
            session.get(where, ssl=unchecked) as got,
        ):
            shown = await got.text()
    made = (tmp_path / "emulator.pem").read_bytes()
    assert made.decode().endswith(shown)
    assert "PRIVATE" not in shown
    assert (tmp_path / "emulator.pem").stat().st_mode & 0o077 == 0
    async with running(settings):
        assert (tmp_path / "emulator.pem").read_bytes() == made


LISTS_DATABASES = """
import asyncio, sys
from azure.cosmos import CosmosClient
from azure.cosmos.aio import CosmosClient as Async

async def main(*where):
    async with Async(*where) as client:
        return [x async for x in client.list_databases()]

print(list(CosmosClient(*sys.argv[1:], retry_total=0).list_databases()), flush=True)
print(asyncio.run(main(*sys.argv[1:])))
"""


def databases_told(url: str, trusted: dict[str, str]) -> list[str]:
    """Return what the clients for Python, sync and async, tell of an account."""
    done = subprocess.run(
        [sys.executable, "-c", LISTS_DATABASES, url, DEVELOPMENT_KEY],
        env=os.environ | trusted,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout.splitlines()


async def test_a_name_of_ones_own_is_in_the_certificate_and_python_trusts_it(
    tmp_path: Path,
) -> None:
    names = ("127.0.0.2", "emulator.example")
    settings = EmulatorSettings(
        host="127.0.0.2", port=0, tls=True, host_names=names, data=tmp_path
    )
    async with running(settings) as url:
        file = str(tmp_path / "emulator.pem")
        trusted = {"REQUESTS_CA_BUNDLE": file, "SSL_CERT_FILE": file}
        assert await asyncio.to_thread(databases_told, url, trusted) == ["[]", "[]"]
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(url)


async def test_a_certificate_without_the_name_is_refused_and_kept(tmp_path: Path) -> None:
    settings = EmulatorSettings(port=0, tls=True, data=tmp_path)
    async with running(settings):
        made = (tmp_path / "emulator.pem").read_bytes()
    code, said = await asyncio.to_thread(
        ended, tmp_path, "--port=0", "--tls", "--data=.", "--host-name=emulator.example"
    )
    assert (code, "emulator.pem" in said, "'emulator.example'" in said) == (2, True, True)
    assert (tmp_path / "emulator.pem").read_bytes() == made


@pytest.mark.parametrize("how", ["by key", "by time to live"])
async def test_others_have_their_turn_while_many_items_are_deleted(
    by_hand: Hand, client: CosmosClient, how: str
) -> None:
    ttl = {"ttl": 3} if how == "by time to live" else {}
    await by_hand.send("PUT", "/dbs/d/colls/c", {"id": "c", "defaultTtl": -1})
    for first in range(0, 3_000, 100):
        bodies = [{"id": str(first + x), "pk": "p", **ttl} for x in range(100)]
        writes = [{"operationType": "Upsert", "resourceBody": x} for x in bodies]
        sent = {"x-ms-cosmos-is-batch-request": "true"}
        assert (await by_hand.send("POST", DOCS, writes, sent, key="p")).status == 200
    items = client.get_database_client("d").get_container_client("c")
    deleting: asyncio.Future[Any]
    if how == "by key":
        deleting = asyncio.ensure_future(items.delete_all_items_by_partition_key("p"))
    else:
        await asyncio.sleep(5)
        deleting = asyncio.ensure_future(by_hand.send("GET", f"{DOCS}/0", key="p"))
    seen = set[int]()
    while not deleting.done() or not seen:
        (told,) = await by_hand.control("GET", "")
        seen.add(told["ranges"][0]["items"])
    await asyncio.wait({deleting})
    (told,) = await by_hand.control("GET", "")
    assert told["ranges"][0]["items"] == 0
    assert any(0 < x < 3_000 for x in seen)
