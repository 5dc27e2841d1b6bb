"""The application, and the coroutine that serves it until it is cancelled."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from changefeed.emulator.auth import key_bytes
from changefeed.emulator.calls import Emulator
from changefeed.emulator.control import Control
from changefeed.emulator.gateway import Gateway
from changefeed.emulator.settings import EmulatorSettings
from changefeed.emulator.tls import server_context
from changefeed.runtime.web_server import WebLimits, host_and_port, serving, take_port

_LARGEST_REQUEST = 8 * 1024 * 1024
LIMITS = WebLimits(most=1024, request=30.0, answer=120.0, idle=300.0, shutdown=2.0)
"""Clients keep many connections, for long, and are kept waiting by faults."""


def create_app(
    settings: EmulatorSettings, *, clock: Callable[[], float] = time.time
) -> web.Application:
    """Return the emulator as an aiohttp application; ``clock`` gives the time of day.

    Raises ``DirectoryInUse`` if another emulator has the directory of the settings, and
    ``ValueError`` for a key or a directory that it cannot use.
    """
    key = key_bytes(settings.key)
    emulator = Emulator(settings, clock)
    gateway = Gateway(emulator, key)
    app = web.Application(client_max_size=_LARGEST_REQUEST)
    Control(gateway).add_to(app.router)
    app.router.add_route("*", "/{path:(?s:.*)}", gateway.handle)

    async def closing(_: web.Application) -> AsyncIterator[None]:
        yield
        emulator.close()

    app.cleanup_ctx.append(closing)
    return app


async def serve(
    settings: EmulatorSettings, *, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancelled; ``ready`` is called with the URL once requests are taken.

    Raises what ``create_app`` raises, and ``OSError`` where nothing can listen.
    """
    context = server_context(settings.data) if settings.tls else None
    app = create_app(settings)
    with take_port(settings.host, settings.port) as listening:
        async with serving(app, LIMITS, listening, tls=context):
            if ready is not None:
                ready(_url(settings, listening.getsockname()[1]))
            await asyncio.Event().wait()


def _url(settings: EmulatorSettings, port: int) -> str:
    scheme = "https" if settings.tls else "http"
    return f"{scheme}://{host_and_port(settings.host, port)}/"
