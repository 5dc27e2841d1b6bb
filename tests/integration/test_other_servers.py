"""What stores and feeds make of servers that are none of theirs: a wrong port, a proxy's page.

It may pass, as a proxy's page does, so hosts ask again; and the text names the address.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAccess, read_address
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.feeds.errors import FeedUnavailable
from changefeed.leases.addresses import open_container
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.runtime.secret import Secret
from changefeed.stores.addresses import open_store

KEY = "a2V5"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
HTML = b"text/html", b"<html>Welcome</html>"
ANSWERS = {
    "html": HTML,
    "no content": (b"text/html", b""),
    "an object": (b"application/json", b"{}"),
    "a list": (b"application/json", b"[1]"),
    "half of XML": (b"application/xml", b"<EnumerationResults"),
}
Open = Callable[[int], AbstractAsyncContextManager[object]]


@asynccontextmanager
async def saying(said: bytes) -> AsyncIterator[int]:
    """Yield the port of a server that says this to each who has said something."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def page(kind: bytes, body: bytes) -> bytes:
    return PAGE % (kind, len(body), body)


def blob(port: int) -> AbstractAsyncContextManager[object]:
    return open_store(
        f"blob+http://127.0.0.1:{port}/a/c/p", OpenOptions(backends={"blob": {"key": KEY}})
    )


def cosmos(port: int) -> AbstractAsyncContextManager[object]:
    options = OpenOptions(cosmos=CosmosAccess(key=Secret.of(KEY)))
    return open_container(f"cosmos+http://127.0.0.1:{port}/d/c", options)


def feed(port: int) -> AbstractAsyncContextManager[object]:
    address = read_address("cosmos+http", f"//127.0.0.1:{port}/d/c", known=())
    return open_cosmos(address, CosmosAccess(key=Secret.of(KEY)))


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("open_", [blob, cosmos, feed])
async def test_a_server_that_is_no_account_may_be_a_proxy_and_is_named(
    open_: Open, answer: tuple[bytes, bytes]
) -> None:
    async with saying(page(*answer)) as port:
        with pytest.raises((StoreUnavailable, FeedUnavailable)) as unavailable:
            async with open_(port):
                pass
    assert f"http://127.0.0.1:{port}/" in str(unavailable.value)


OTHERS: list[Any] = [page(*HTML), b"SSH-2.0-OpenSSH_9.2\r\n", b"220 ready\r\n"]


@pytest.mark.parametrize("said", OTHERS)
@pytest.mark.parametrize(
    ("address", "raises", "named"),
    [
        ("redis://127.0.0.1:{}/0", StoreUnavailable, "redis://127.0.0.1:{}/0"),
        ("postgresql://u:p@127.0.0.1:{}/d", StoreRefused, r"1:{}/d .*is it PostgreSQL\?"),
    ],
)
async def test_a_server_that_is_no_store_is_named(
    said: bytes, address: str, raises: type[Exception], named: str
) -> None:
    async with saying(said) as port:
        with pytest.raises(raises, match=named.format(port)):
            async with open_store(address.format(port)):
                pass
