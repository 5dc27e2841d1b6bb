"""The web server of a host's own process, for what ``changefeed.host.endpoints`` answers.

The port is taken before the host joins, because its member record names it, and answers
from then on. It is this machine only, unless ``web.bind`` says otherwise. A connection is for
one answer, and strangers cannot take the descriptors that the host needs for its stores: see
``changefeed.runtime.web_server``.
"""

import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

from changefeed.host.endpoints import Answers, application
from changefeed.host.settings import WebSettings
from changefeed.runtime import web_server
from changefeed.runtime.errors import UserError
from changefeed.runtime.web_server import WebLimits


@contextmanager
def listening_socket(settings: WebSettings) -> Iterator[socket.socket]:
    """Take the port. Raise ``UserError`` if that cannot be had."""
    try:
        assert settings.port != "off", "there is a port to listen at"
        listening = web_server.take_port(settings.bind, settings.port)
    except OSError as error:
        raise UserError(_advice(settings, error)) from error
    with listening:
        yield listening


def url_of(listening: socket.socket) -> str:
    """Return where others find it."""
    return f"http://{web_server.address_of(listening)}"


@asynccontextmanager
async def serving(
    listening: socket.socket, answers: Answers, limits: WebLimits | None = None
) -> AsyncIterator[None]:
    """Answer until the block is left."""
    async with serving_application(listening, application(answers), limits):
        yield


@asynccontextmanager
async def serving_application(
    listening: socket.socket, app: web.Application, limits: WebLimits | None = None
) -> AsyncIterator[None]:
    """Serve ``app`` until the block is left, within the limits of a host's endpoints."""
    async with web_server.serving(app, limits or WebLimits(), listening):
        yield


def _advice(settings: WebSettings, error: OSError) -> str:
    where = f"web.bind {settings.bind!r}, web.port {settings.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {settings.port} of {settings.bind} is in use by another program ({where}): "
            f"choose another, or 0 for any that is free"
        )
    return f"cannot listen for the web endpoints: {error} ({where})"
