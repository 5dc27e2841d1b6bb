"""The web server of a host's own process, for what ``changefeed.host.endpoints`` answers.

The port is taken before the host joins, because its member record names it, and answers
from then on. It is this machine only, unless ``web.bind`` says otherwise.

Strangers cannot take the descriptors that the host needs for its stores: there are few
connections at once, each ends after one answer and within a short time, and where one too
many comes, the oldest is closed. So a probe gets its answer also while others hold
connections open.
"""

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address

from aiohttp import web

from changefeed.host.endpoints import Answers, application
from changefeed.host.settings import WebSettings
from changefeed.runtime.errors import UserError

_BACKLOG = 16
"""So many connections are accepted in one turn of the loop, before any can be refused."""
_CLOSE_TIMEOUT = 1.0
_MOST_CONNECTIONS = 64
_LONGEST_CONNECTION = 10.0


class AddressRefused(UserError):
    """We cannot listen there."""


@contextmanager
def listening_socket(settings: WebSettings) -> Iterator[socket.socket]:
    """Take the port. Raise ``AddressRefused`` if that cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.bind, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressRefused(_advice(settings, error)) from error
    with listening:
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError as error:
            raise AddressRefused(_advice(settings, error)) from error
        yield listening


def url_of(listening: socket.socket) -> str:
    """Return where others find it; by the machine's name if it listens on all addresses."""
    host, port = listening.getsockname()[:2]
    if ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def serving(listening: socket.socket, answers: Answers) -> AsyncIterator[None]:
    """Answer until the block is left."""
    async with serving_application(listening, application(answers)):
        yield


@asynccontextmanager
async def serving_application(
    listening: socket.socket, app: web.Application
) -> AsyncIterator[None]:
    """Serve ``app`` until the block is left."""
    app.on_response_prepare.append(_close_after_answer)
    runner = web.AppRunner(
        app, access_log=None, handle_signals=False, shutdown_timeout=_CLOSE_TIMEOUT
    )
    await runner.setup()
    answering = runner.server
    assert answering is not None, "the runner was set up"
    connections = Connections(most_connections(_soft_limit_of_descriptors()))
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: _BoundedConnection(answering(), connections),
            sock=listening,
            backlog=_BACKLOG,
        )
        try:
            yield
        finally:
            server.close()
    finally:
        await runner.cleanup()


async def _close_after_answer(_: web.Request, response: web.StreamResponse) -> None:
    response.force_close()


def most_connections(descriptors: int) -> int:
    """Leave three quarters of the process's descriptors to the host and its observers."""
    return max(4, min(_MOST_CONNECTIONS, descriptors // 4))


def _soft_limit_of_descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS * 4 if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The open connections, the oldest first, and never more than ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.Transport, None] = {}

    def add(self, transport: asyncio.Transport) -> None:
        while len(self._open) >= self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[transport] = None

    def remove(self, transport: asyncio.Transport) -> None:
        self._open.pop(transport, None)


class _BoundedConnection(asyncio.Protocol):
    """Passes one connection on to aiohttp, for a short time: aiohttp itself would wait for
    the rest of a request for an hour.
    """

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a TCP server makes no other"
        self._transport = transport
        self._connections.add(transport)
        self._end = asyncio.get_running_loop().call_later(_LONGEST_CONNECTION, transport.abort)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        self._connections.remove(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def _advice(settings: WebSettings, error: OSError) -> str:
    where = f"web.bind {settings.bind!r}, web.port {settings.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {settings.port} of {settings.bind} is in use by another program ({where}): "
            f"choose another, or 0 for any that is free"
        )
    return f"cannot listen for the web endpoints: {error} ({where})"
