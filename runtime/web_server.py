"""An HTTP server that strangers cannot exhaust: for hosts, brokers and pipelines.

aiohttp waits for the rest of a request for an hour, and takes as many connections as come.
Here there are few at once, and each has a limit of time for its request, for its answer
and between the two; an answer that has to take longer says so (``take_time``). Where one too
many comes, the one that has waited longest for its client is closed. So a probe gets its answer
also while others hold connections open, and the process keeps its descriptors for its stores.

Limits: a client that holds ``most`` connections, and asks without end on each, gets them all
the time that others do not come.
"""

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from changefeed.runtime.listening import BACKLOG

_serving: "ContextVar[Connections | None]" = ContextVar("serving", default=None)
_ACCEPTED = 16
"""So many connections are accepted in one turn of the loop, before any can be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """For each connection, in seconds: how long its request may take from the first byte to
    the last, its answer, and the pause until the next request. ``most``: at once.
    ``backlog``: how many clients may wait, connected, until the loop accepts them.

    Without ``idle`` a connection is for one request.
    """

    most: int = 64
    backlog: int = BACKLOG
    request: float = 10.0
    answer: float = 10.0
    idle: float | None = None
    shutdown: float = 1.0


@asynccontextmanager
async def serving(
    app: web.Application,
    limits: WebLimits,
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Answer until the block is left. ``app`` must not have been served before."""
    connections = Connections(most_connections(limits.most, descriptors()), limits)
    app.middlewares.insert(0, connections.watched)
    if limits.idle is None:
        app.on_response_prepare.append(_close_after_answer)
    runner = web.AppRunner(
        app, access_log=None, handle_signals=False, shutdown_timeout=limits.shutdown
    )
    await runner.setup()
    answering = runner.server
    assert answering is not None, "the runner was set up"
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(answering(), connections),
            sock=listening,
            backlog=_ACCEPTED,
            ssl=tls,
        )
        listening.listen(limits.backlog)  # asyncio has one number for both
        try:
            yield
        finally:
            server.close()
    finally:
        await runner.cleanup()


def take_time(request: web.Request, seconds: float) -> None:
    """Let the answer to this request take so long: events that come as they happen, say.

    Where one connection too many comes, it is closed before any whose answer is under way.
    Under another server, this does nothing.
    """
    connections = _serving.get()
    if connections is not None and request.transport is not None:
        connections.take_time(request.transport, seconds)


async def _close_after_answer(_: web.Request, response: web.StreamResponse) -> None:
    response.force_close()
    response.headers[hdrs.CONNECTION] = "close"  # else a client sends its next request into it


def most_connections(wanted: int, descriptors: int) -> int:
    """Leave three quarters of the process's descriptors to its stores and to user code."""
    return max(4, min(wanted, descriptors // 4))


def descriptors() -> int:
    """Return how many files and sockets this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The open connections, those that wait for their clients in the order of their waiting,
    and never more than ``most``.
    """

    def __init__(self, most: int, limits: WebLimits) -> None:
        self._most = most
        self._limits = limits
        self._waiting: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self._taking_time: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self._answering: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    @property
    def _states(self) -> Sequence[dict[asyncio.Transport, asyncio.TimerHandle]]:
        """In the order in which they give way."""
        return self._waiting, self._taking_time, self._answering

    def add(self, transport: asyncio.Transport) -> None:
        while sum(map(len, self._states)) >= self._most:
            longest = next(transport for state in self._states for transport in state)
            self.remove(longest)
            longest.abort()
        self._wait(transport, self._limits.request)

    def remove(self, transport: asyncio.Transport) -> None:
        for state in self._states:
            timer = state.pop(transport, None)
            if timer is not None:
                timer.cancel()

    @web.middleware
    async def watched(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let the time for an answer run from when the request is whole."""
        transport = request.transport
        if transport is None:
            return await handler(request)
        _serving.set(self)
        if request.content.is_eof():
            self._answer(transport)
        else:
            request.content.on_eof(lambda: self._answer(transport))
        try:
            return await handler(request)
        finally:
            self._answered(transport)

    def take_time(self, transport: asyncio.Transport, seconds: float) -> None:
        if self._is_open(transport):
            self.remove(transport)
            self._taking_time[transport] = self._timer(transport, seconds)

    def _answer(self, transport: asyncio.Transport) -> None:
        if self._is_open(transport):
            self.remove(transport)
            self._answering[transport] = self._timer(transport, self._limits.answer)

    def _answered(self, transport: asyncio.Transport) -> None:
        """What is answered may still have to be sent, and read by the client."""
        if self._is_open(transport):
            self.remove(transport)
            self._wait(transport, self._limits.idle or self._limits.answer)

    def _wait(self, transport: asyncio.Transport, seconds: float) -> None:
        self._waiting[transport] = self._timer(transport, seconds)

    def _is_open(self, transport: asyncio.Transport) -> bool:
        return any(transport in state for state in self._states)

    def _timer(self, transport: asyncio.Transport, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, transport.abort)


class _Connection(asyncio.Protocol):
    """Passes one connection on to aiohttp, and says when it comes and goes."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a TCP server makes no other"
        self._transport = transport
        self._connections.add(transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
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
