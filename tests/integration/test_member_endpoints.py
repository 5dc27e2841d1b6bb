"""Addresses in records may lead anywhere: doctor reads little there, and goes no further."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from changefeed.cli import diagnosing
from changefeed.cli.diagnosing import ask_endpoints
from changefeed.fleet import peers
from tests.support import make
from tests.support.processes import PATIENCE

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def said_of(address: str) -> str:
    (found,) = await ask_endpoints([make.host_seen("anna", address=address)])
    return found.text


async def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.json_response({"problems": []})

    async with serving(elsewhere) as other:

        async def redirect(_: web.Request) -> web.StreamResponse:
            raise web.HTTPFound(f"{other}/readyz")

        async with serving(redirect) as address:
            assert "302" in await said_of(address)
    assert asked == []


async def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosing, "_ANSWER_WITHIN", 0.5)

    def sends(piece: bytes) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(piece)
                await asyncio.sleep(0.01)

        return answer

    async with serving(sends(b" ")) as slow:
        async with asyncio.timeout(PATIENCE):  # it would go on for ever
            assert "does not answer" in await said_of(slow)
    monkeypatch.setattr(diagnosing, "_ANSWER_WITHIN", 60.0)
    async with serving(sends(b" " * 1_000_000)) as large:
        assert "longer than 8,000,000 bytes" in await said_of(large)


async def test_few_bytes_do_not_become_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_MAX_BYTES", 1_000)
    document = json.dumps({"problems": ["x" * 10_000_000]}).encode()

    async def bomb(_: web.Request) -> web.StreamResponse:
        return web.Response(
            body=gzip.compress(document)[:900], headers={"Content-Encoding": "gzip"}
        )

    async with serving(bomb) as address:
        assert "malformed" in await said_of(address)


async def test_a_host_that_is_not_ready_says_why() -> None:
    async def not_ready(request: web.Request) -> web.StreamResponse:
        assert request.path == "/readyz"
        return web.json_response({"problems": ["no lease container"]}, status=503)

    async with serving(not_ready) as address:
        assert "it is not ready: no lease container" in await said_of(address)
