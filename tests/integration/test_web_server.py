"""Limits of the one HTTP server of hosts, brokers and pipelines."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import ClassVar

import pytest
from aiohttp import web

from changefeed.runtime.errors import UserError
from changefeed.runtime.listening import take_port
from changefeed.runtime.web_server import WebLimits, serving
from tests.support.processes import PATIENCE

_GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_HALF = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"


@asynccontextmanager
async def served(limits: WebLimits, hold: asyncio.Event | None = None) -> AsyncIterator[int]:
    """Serve what answers a request with its body, once ``hold`` is set; let clients go."""

    async def respond(request: web.Request) -> web.Response:
        body = await request.read()
        if hold is not None:
            await hold.wait()
        return web.Response(body=b"got " + body)

    app = web.Application()
    app.router.add_route("*", "/", respond)
    with take_port("127.0.0.1", 0) as listening:
        async with serving(app, limits, listening):
            try:
                yield listening.getsockname()[1]
            finally:
                while Client.made:
                    await Client.made.pop().leave()


class Client:
    made: ClassVar[list["Client"]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, port: int, *sends: bytes) -> "Client":
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.send(*sends)
        cls.made.append(client)
        return client

    async def leave(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    def send(self, *sends: bytes) -> None:
        self._writer.writelines(sends)

    async def answer(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self._reader.readuntil(b"got ")

    async def closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while await self._reader.read(1000):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


async def test_a_connection_that_is_for_one_request_says_so_and_is_closed() -> None:
    async with served(WebLimits()) as port:
        client = await Client.of(port, _GET)
        assert b"Connection: close" in await client.answer()
        assert await client.closed_within(5)


async def test_a_connection_that_is_kept_is_closed_when_it_is_idle_for_too_long() -> None:
    async with served(WebLimits(request=60, idle=0.5)) as port:
        client = await Client.of(port, _GET)
        await client.answer()
        client.send(_GET)
        await client.answer()
        assert await client.closed_within(5)


async def test_half_a_body_is_waited_for_no_longer_than_half_a_head() -> None:
    async with served(WebLimits(request=0.5, idle=60, answer=60)) as port:
        assert await (await Client.of(port, _HALF)).closed_within(5)
        whole = await Client.of(port, _HALF, b"cde")
        await whole.answer()
        assert not await whole.closed_within(1)


async def test_an_answer_may_take_longer_than_a_request_but_not_for_ever() -> None:
    async with served(WebLimits(request=0.2, answer=1.5), asyncio.Event()) as port:
        client = await Client.of(port, _GET)
        assert not await client.closed_within(0.7)
        assert await client.closed_within(5)


async def test_who_does_not_read_its_answer_is_not_waited_for_either() -> None:
    size = 64 << 20  # more than lies in the buffers between the two

    async def respond(_: web.Request) -> web.Response:
        return web.Response(body=bytes(size))

    app = web.Application()
    app.router.add_get("/", respond)
    with take_port("127.0.0.1", 0) as listening:
        async with serving(app, WebLimits(answer=0.5), listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(_GET)
            await asyncio.sleep(2)
            read = 0
            with suppress(ConnectionError):
                while found := await reader.read(1 << 20):
                    read += len(found)
            writer.close()
    assert read < size


async def test_one_connection_too_many_closes_one_that_waits_for_its_client() -> None:
    hold = asyncio.Event()
    async with served(WebLimits(most=4, request=60, answer=60), hold) as port:
        answered = await Client.of(port, _GET)
        await asyncio.sleep(0.2)
        waiting = [await Client.of(port, b"GET") for _ in range(3)]
        await asyncio.sleep(0.2)
        another = await Client.of(port, _GET)
        assert await waiting[0].closed_within(5)
        assert not await waiting[1].closed_within(0.2)
        hold.set()
        await answered.answer()
        await another.answer()


async def test_as_many_clients_as_said_connect_while_the_loop_is_busy() -> None:
    def crowd(port: int) -> None:  # on the loop, which therefore accepts nobody
        with ExitStack() as clients:
            for _ in range(60):
                client = socket.create_connection(("127.0.0.1", port), timeout=0.5)
                clients.enter_context(client)

    with take_port("127.0.0.1", 0, 128) as listening:
        crowd(listening.getsockname()[1])
        async with serving(web.Application(), WebLimits(backlog=128), listening):
            crowd(listening.getsockname()[1])


@pytest.mark.parametrize("bind", ["\udcff", "a" * 300, "a..b"])
def test_a_name_that_no_machine_has_cannot_be_listened_at(bind: str) -> None:
    with pytest.raises(UserError, match="no machine has such a name"):
        take_port(bind, 0)
