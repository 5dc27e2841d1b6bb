"""``changefeed exporter``: the lag of a fleet over HTTP, also while no host runs.

    /livez    200 as long as it answers
    /metrics  for Prometheus: what `changefeed status --prometheus` prints
    /scale    how many hosts the fleet should have, for KEDA's metrics-api

It reads leases and feed as ``changefeed status`` does, writes nothing, and looks at most
every few seconds, however often it is asked.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from changefeed.cli.existing import refuse_to_create
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.prometheus import as_prometheus
from changefeed.host.scaling import DEFAULT_LAG_PER_HOST, desired_hosts
from changefeed.host.settings import Settings
from changefeed.host.snapshot import FleetInspector, Snapshot
from changefeed.host.web import listening_socket, serving_application, url_of
from changefeed.leases.errors import ContainerError
from changefeed.runtime.logs import get_logger, set_up_logs

_log = get_logger()
_LOOK_AT_MOST_EVERY = 5.0


@with_flags
def exporter(
    flags: FeedFlags,
    *,
    lag_per_host: Annotated[
        int, typer.Option("--lag-per-host", min=1, help="So many changes are left to a host.")
    ] = DEFAULT_LAG_PER_HOST,
) -> None:
    """Serve the lag of a fleet to Prometheus and to KEDA; hosts need not run.

    It listens where web.bind and web.port say, and runs until SIGTERM or Ctrl-C.
    """
    with exit_on_error():
        settings = flags.settings()
        set_up_logs(settings.log, ())
        asyncio.run(_export(settings, lag_per_host))


async def _export(settings: Settings, lag_per_host: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await refuse_to_create(settings)
    async with FleetInspector.of(settings) as fleet:
        with listening_socket(settings.web) as listening:
            application = exporter_application(Looks(fleet, loop.time), lag_per_host)
            async with serving_application(listening, application):
                _log.info("web.listening", address=url_of(listening))
                await stop.wait()


class Looks:
    """One look at the fleet serves all who ask within some seconds."""

    def __init__(self, fleet: FleetInspector, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._looking = asyncio.Lock()
        self._last: tuple[float, Snapshot] | None = None

    async def look(self) -> Snapshot:
        """Raise ``ContainerError`` if the container does not answer."""
        async with self._looking:
            if self._last is None or self._clock() - self._last[0] >= _LOOK_AT_MOST_EVERY:
                seen = await self._fleet.look()
                self._last = self._clock(), seen
            return self._last[1]


def exporter_application(looks: Looks, lag_per_host: int) -> web.Application:
    async def alive(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def metrics(_: web.Request) -> web.Response:
        text = as_prometheus(await looks.look(), lag_per_host=lag_per_host)
        answer = web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE_LATEST})
        answer.enable_compression()
        return answer

    async def scale(_: web.Request) -> web.Response:
        seen = await looks.look()
        return web.json_response(
            {"desired_hosts": desired_hosts(seen, lag_per_host=lag_per_host)}
        )

    made = web.Application(middlewares=[_unavailable])
    made.add_routes(
        [web.get("/livez", alive), web.get("/metrics", metrics), web.get("/scale", scale)]
    )
    return made


@web.middleware
async def _unavailable(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except ContainerError as error:
        return web.json_response({"error": str(error)}, status=503)
