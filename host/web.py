"""The port of a host's own process, for what ``changefeed.host.endpoints`` answers.

The port is taken before the host joins, because its member record names it, and answers from
then on. It is this machine only, unless ``web.bind`` says otherwise.
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.host.settings import WebSettings
from changefeed.runtime import web_server
from changefeed.runtime.errors import UserError


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


def _advice(settings: WebSettings, error: OSError) -> str:
    where = f"web.bind {settings.bind!r}, web.port {settings.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {settings.port} of {settings.bind} is in use by another program ({where}): "
            f"choose another, or 0 for any that is free"
        )
    return f"cannot listen for the web endpoints: {error} ({where})"
