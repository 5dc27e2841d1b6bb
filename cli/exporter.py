"""``changefeed exporter``: the lag of a fleet over HTTP, also while no host runs.

    /livez    200 as long as it answers
    /metrics  for Prometheus: what `changefeed status --prometheus` prints
    /scale    how many hosts the fleet should have, for KEDA's metrics-api

It reads leases and feed as ``changefeed status`` does, writes nothing, and looks at most
every few seconds, however often it is asked. Where a look takes longer than those who ask
would wait, they get the one before, with its age in seconds (``Age``).

With a port for it, it speaks KEDA's external scaler protocol as well.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

import typer
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from changefeed.cli.existing import existing_fleet
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.metrics import as_metrics
from changefeed.cli.serving import serve_until_stopped
from changefeed.fleet.status import DEFAULT_LAG_PER_HOST
from changefeed.fleet.watch import FleetWatch
from changefeed.host.settings import Settings
from changefeed.host.web import listening_socket, serving_application, url_of
from changefeed.runtime.errors import StoreError, UserError
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.shutdown import StopSignals

_log = get_logger()
_SCRAPE_WITHIN, _SCALE_WITHIN = 8.0, 2.5
"""Prometheus waits for 10 s, KEDA for 3, unless set otherwise."""


@with_flags
def exporter(
    flags: FeedFlags,
    *,
    lag_per_host: Annotated[
        int, typer.Option("--lag-per-host", min=1, help="So many changes are left to a host.")
    ] = DEFAULT_LAG_PER_HOST,
    scaler_port: Annotated[
        int | None,
        typer.Option(
            "--scaler-port", min=0, max=65535, help="Where KEDA's external scaler listens."
        ),
    ] = None,
) -> None:
    """Serve the lag of a fleet to Prometheus and to KEDA; hosts need not run.

    It listens where web.bind and web.port say, and runs until SIGTERM or Ctrl-C.
    """
    with exit_on_error():
        settings = flags.settings()
        set_up_logs(settings.log, ())
        serve_until_stopped(partial(_export, settings, lag_per_host, scaler_port))


async def _export(
    settings: Settings, lag_per_host: int, scaler_port: int | None, signals: StopSignals
) -> None:
    async with existing_fleet(settings) as fleet:
        with listening_socket(settings.web) as listening:
            watch = FleetWatch(fleet.look)
            application = exporter_application(watch, lag_per_host)
            async with (
                serving_application(listening, application),
                _scaler(watch, lag_per_host, settings.web.bind, scaler_port),
            ):
                _log.info("web.listening", address=url_of(listening))
                await signals.wait()
            await watch.stop()


@asynccontextmanager
async def _scaler(
    watch: FleetWatch, lag_per_host: int, bind: str, port: int | None
) -> AsyncIterator[None]:
    if port is None:
        yield
        return
    try:
        from changefeed.cli.keda_scaler import Scaler, serving_scaler  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UserError(
            "--scaler-port needs gRPC: install changefeed-host[keda], or let KEDA's "
            "metrics-api ask /scale"
        ) from error
    async with serving_scaler(Scaler(watch, lag_per_host), bind, port) as taken:
        _log.info("scaler.listening", bind=bind, port=taken)
        yield


def exporter_application(watch: FleetWatch, lag_per_host: int) -> web.Application:
    async def alive(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def metrics(_: web.Request) -> web.Response:
        seen = await watch.look(within=_SCRAPE_WITHIN)
        text = as_metrics(seen, lag_per_host=lag_per_host)
        headers = {"Content-Type": CONTENT_TYPE_LATEST, "Age": f"{watch.age:.0f}"}
        answer = web.Response(body=text.encode(), headers=headers)
        answer.enable_compression()
        return answer

    async def scale(_: web.Request) -> web.Response:
        seen = await watch.look(within=_SCALE_WITHIN)
        desired = seen.desired_hosts(lag_per_host)
        headers = {"Age": f"{watch.age:.0f}"}
        return web.json_response({"desired_hosts": desired}, headers=headers)

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
    except StoreError as error:
        return web.json_response({"error": str(error)}, status=503)
