"""The application, and the coroutine that serves it until it is cancelled."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from cosmos_emulator.calls import Emulator
from cosmos_emulator.control import Control
from cosmos_emulator.explorer import add_explorer
from cosmos_emulator.gateway import Gateway
from cosmos_emulator.seeds import plant
from cosmos_emulator.settings import EmulatorSettings
from cosmos_emulator.tls import Identity, identity
from cosmos_emulator.visitors import doorkeeper

_LARGEST_REQUEST = 8 * 1024 * 1024
_IDLE_SECONDS = 300.0  # clients keep many connections, for long
_STOP_SECONDS = 2.0


def create_app(
    settings: EmulatorSettings,
    *,
    clock: Callable[[], float] = time.time,
    shown: Identity | None = None,
) -> web.Application:
    """Return the emulator as an aiohttp application; ``clock`` gives the time of day.

    ``shown`` is who it is over https.

    Raises ``DirectoryInUse`` if another emulator has the directory of the settings, and
    ``ValueError`` for a key, a directory or a seed that it cannot use.
    """
    emulator = Emulator(settings, clock)
    if settings.seed is not None:
        try:
            plant(emulator, settings.seed)
        except BaseException:
            emulator.close()
            raise
    gateway = Gateway(emulator)
    app = web.Application(client_max_size=_LARGEST_REQUEST, middlewares=[doorkeeper(settings)])
    Control(gateway).add_to(app.router)
    add_explorer(app.router, None if shown is None else shown.certificate)
    app.router.add_route("*", "/{path:(?s:.*)}", gateway.handle)

    async def closing(_: web.Application) -> AsyncIterator[None]:
        yield
        emulator.close()

    async def ending_scripts(_: web.Application) -> None:
        emulator.sandboxes.close()

    app.on_shutdown.append(ending_scripts)  # before it waits for requests to end
    app.cleanup_ctx.append(closing)
    return app


async def serve(
    settings: EmulatorSettings, *, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancelled; ``ready`` is called with the URL once requests are taken.

    Raises what ``create_app`` raises, and ``OSError`` where nothing can listen.
    """
    shown = identity(settings.data, settings.host_names) if settings.tls else None
    runner = web.AppRunner(
        create_app(settings, shown=shown),
        access_log=None,
        keepalive_timeout=_IDLE_SECONDS,
        shutdown_timeout=_STOP_SECONDS,
    )
    await runner.setup()
    try:
        context = None if shown is None else shown.context
        await web.TCPSite(runner, settings.host, settings.port, ssl_context=context).start()
        if ready is not None:
            ready(_url(settings, runner.addresses[0][1]))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def host_and_port(host: str, port: int) -> str:
    """Return both as an address has them: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url(settings: EmulatorSettings, port: int) -> str:
    scheme = "https" if settings.tls else "http"
    return f"{scheme}://{host_and_port(settings.host, port)}/"
