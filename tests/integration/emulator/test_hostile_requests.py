"""Whatever is sent, the emulator refuses or answers: no 500, and a refusal stores nothing."""

import asyncio
import random
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from yarl import URL

from changefeed.emulator import DEVELOPMENT_KEY, EmulatorSettings
from tests.integration.emulator.odd import Request, odd_request
from tests.integration.emulator.running import DOCS, Hand, hand, running, signed

pytestmark = pytest.mark.real_time
_ROUNDS = 800
_FAILED = 500


async def send(by_hand: Hand, request: Request) -> int:
    """Send it as it is, signed unless it says otherwise; 0 where no client would."""
    headers = signed(request.verb, request.path, DEVELOPMENT_KEY) | dict(request.headers)
    url = URL(by_hand.url.rstrip("/") + request.path, encoded=True)
    try:
        async with by_hand.session.request(
            request.verb, url, data=request.body, headers=headers
        ) as got:
            await got.read()
            return got.status
    except (ValueError, UnicodeError, aiohttp.InvalidURL, aiohttp.ClientError):
        return 0


async def stored(by_hand: Hand) -> Any:
    """Return all that listings show."""
    databases = (await by_hand.send("GET", "/dbs")).body
    names = [x["id"] for x in databases["Databases"]]
    containers = [(await by_hand.send("GET", f"/dbs/{x}/colls")).body for x in names]
    offers = (await by_hand.send("GET", "/offers")).body
    return databases, containers, offers, await by_hand.control("GET", "")


@pytest.mark.parametrize("seed", range(2))
async def test_no_request_fails_the_emulator_and_what_it_refuses_is_not_stored(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    settings = EmulatorSettings(port=0, data=tmp_path / "kept")
    async with running(settings) as url, hand(url) as by_hand:
        before = await stored(by_hand)
        answered = 0
        for _ in range(_ROUNDS):
            request = odd_request(chance)
            status = await send(by_hand, request)
            assert status < _FAILED, request
            after = await stored(by_hand)
            if not 200 <= status < 300:
                assert after == before, request
            before, answered = after, answered + (200 <= status < 300)
        assert answered > _ROUNDS / 10, "hardly any request came through: nothing was tried"
    async with running(settings) as url, hand(url) as by_hand:
        assert await stored(by_hand) == before
        items = await by_hand.query("SELECT VALUE COUNT(1) FROM c")
        assert items.status == 200
        assert (await by_hand.feed()).status in {200, 304}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST",
        b"POST /dbs HTTP/1.1\r\nHost: x\r\n",
        b"POST /dbs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"POST /dbs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"x" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"A: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /dbs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    ],
)
async def test_half_a_request_stops_neither_the_emulator_nor_its_other_clients(
    url: str, by_hand: Hand, sent: bytes
) -> None:
    where = urlsplit(url)
    before = await stored(by_hand)
    for leaves in (True, False):
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(sent)
        await writer.drain()
        if leaves:
            writer.close()
        else:
            writer.write_eof()
            async with asyncio.timeout(10):
                answer = await reader.read()
            assert b" 500 " not in answer.split(b"\r\n", 1)[0]
            writer.close()
    assert await stored(by_hand) == before


async def test_a_client_that_stops_reading_holds_up_no_other(url: str, by_hand: Hand) -> None:
    for n in range(20):
        body = {"id": f"big{n}", "pk": "p", "text": "x" * 200_000}
        assert (await by_hand.send("POST", DOCS, body, key="p")).status == 201
    headers = signed("GET", DOCS, DEVELOPMENT_KEY) | {"x-ms-max-item-count": "-1"}
    lines = [f"GET {DOCS} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
    where = urlsplit(url)
    _, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await writer.drain()
    async with asyncio.timeout(5):
        assert (await by_hand.send("GET", f"{DOCS}/big0", key="p")).status == 200
    writer.transport.abort()
    assert (await by_hand.send("GET", f"{DOCS}/big1", key="p")).status == 200
