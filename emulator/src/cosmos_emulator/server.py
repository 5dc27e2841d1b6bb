"""The application, and the coroutine that serves it until it is cancelled."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from aiohttp import web

from cosmos_emulator.calls import Emulator
from cosmos_emulator.control import Control
from cosmos_emulator.explorer import add_explorer
from cosmos_emulator.gateway import Gateway
from cosmos_emulator.regions import Regions
from cosmos_emulator.seeds import plant
from cosmos_emulator.settings import EmulatorSettings
from cosmos_emulator.tls import Identity, identity
from cosmos_emulator.visitors import doorkeeper

REGIONS: Final = web.AppKey("regions", Regions)
_LARGEST_REQUEST = 8 * 1024 * 1024
_IDLE_SECONDS = 300.0  # clients keep many connections, for long
_STOP_SECONDS = 2.0
_LAST_PORT = 65_535


def create_app(
    settings: EmulatorSettings,
    *,
    clock: Callable[[], float] = time.time,
    now: Callable[[], float] = time.monotonic,
    shown: Identity | None = None,
) -> web.Application:
    """Return the emulator as an aiohttp application.

    ``clock`` gives the time of day, and ``now`` the seconds by which regions lag. ``shown`` is
    who it is over https.

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
    try:
        regions = Regions(emulator, now)
    except ValueError:
        emulator.close()
        raise
    gateway = Gateway(emulator, regions)
    app = web.Application(client_max_size=_LARGEST_REQUEST, middlewares=[doorkeeper(settings)])
    Control(gateway).add_to(app.router)
    add_explorer(app.router, None if shown is None else shown.certificate)
    app.router.add_route("*", "/{path:(?s:.*)}", gateway.handle)

    app[REGIONS] = regions

    async def closing(_: web.Application) -> AsyncIterator[None]:
        following = asyncio.create_task(regions.keep_up()) if len(regions) > 1 else None
        yield
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
        emulator.close()

    async def ending_scripts(_: web.Application) -> None:
        emulator.sandboxes.close()

    app.on_shutdown.append(ending_scripts)  # before it waits for requests to end
    app.cleanup_ctx.append(closing)
    return app


async def serve(
    settings: EmulatorSettings,
    *,
    ready: Callable[[str], None] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Serve until cancelled; ``ready`` is called with the URL once requests are taken.

    ``now`` gives the seconds by which regions lag.

    Raises what ``create_app`` raises, and ``OSError`` where nothing can listen.
    """
    shown = identity(settings.data, settings.host_names) if settings.tls else None
    app = create_app(settings, now=now, shown=shown)
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=_IDLE_SECONDS,
        shutdown_timeout=_STOP_SECONDS,
    )
    await runner.setup()
    doors = _Doors(runner, settings.host, None if shown is None else shown.context)
    try:
        port = await doors.open(settings.port)
        await _open_regions(app[REGIONS], doors, settings.port)
        if ready is not None:
            ready(_url(settings, port))
        await asyncio.Event().wait()
    finally:
        await doors.close()
        await _end(runner)


async def _end(runner: web.AppRunner) -> None:
    """Let requests end, and then the connections."""
    assert runner.server is not None, "it is set up"
    connections = [x.transport for x in runner.server.connections]
    await runner.cleanup()
    for transport in connections:
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()  # over TLS, closing waits for clients, which may be idle
    await asyncio.sleep(0)


async def _open_regions(regions: Regions, doors: "_Doors", first: int) -> None:
    """Give each region a port of its own, if there are several: those behind the account's."""
    if len(regions) == 1:
        return
    if first + len(regions) > _LAST_PORT:
        raise ValueError(f"{len(regions)} regions have no ports behind {first}.")
    for number, region in enumerate(regions, start=1):
        region.port = await doors.open(first and first + number)

    regions.switch = doors.switch


class _Doors:
    """The ports that are listened at."""

    def __init__(
        self, runner: web.AppRunner, host: str, context: ssl.SSLContext | None
    ) -> None:
        self._runner = runner
        self._host = host
        self._context = context
        self._servers: dict[int, asyncio.Server] = {}

    async def open(self, port: int) -> int:
        """Listen at a port, or at any free one for 0; return which."""
        handlers = self._runner.server
        assert handlers is not None, "the runner is set up"
        loop = asyncio.get_running_loop()
        server = await loop.create_server(handlers, self._host, port, ssl=self._context)
        taken = int(server.sockets[0].getsockname()[1])
        self._servers[taken] = server
        return taken

    async def switch(self, port: int, is_open: bool) -> None:  # noqa: FBT001 - what it is to be
        """Open a port, or close it: connections that are there end with their next request."""
        if is_open:
            await self.open(port)
        else:
            await self._close(self._servers.pop(port))

    async def close(self) -> None:
        """Close all ports."""
        for server in self._servers.values():
            await self._close(server)

    async def _close(self, server: asyncio.Server) -> None:
        """Stop listening."""
        # asyncio leaks the socket of a connection that is accepted, and has no transport yet.
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        await asyncio.sleep(0)
        server.close()


def host_and_port(host: str, port: int) -> str:
    """Return both as an address has them: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url(settings: EmulatorSettings, port: int) -> str:
    scheme = "https" if settings.tls else "http"
    return f"{scheme}://{host_and_port(settings.host, port)}/"
