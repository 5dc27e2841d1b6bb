"""What a pipeline reports over HTTP, at the addresses of the host's endpoints.

    /livez    200 as long as the process answers
    /readyz   200, or 503 with what is wrong: queries that wait for their feed
    /metrics  for Prometheus
    /tables   how far each table is, as ``changefeed pipeline status --json`` has it

There is no access control. It is this machine only, unless ``web.bind`` says otherwise. The
server has a thread and an event loop of its own, and the limits of a host's endpoints.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec
from aiohttp import hdrs, web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from changefeed.pipeline.progress import TableProgress
from changefeed.pipeline.settings import WebSettings
from changefeed.pipeline.source.loop_thread import LoopThread
from changefeed.runtime.listening import address_of, take_port
from changefeed.runtime.logs import get_logger
from changefeed.runtime.web_server import WebLimits, serving

_log = get_logger()


@contextmanager
def served(
    settings: WebSettings, progress: TableProgress, registry: CollectorRegistry
) -> Iterator[str | None]:
    """Answer until the block is left, if a port was named; yield the address.

    Raise ``UserError`` if it cannot be had.
    """
    if settings.port is None:
        yield None
        return
    with (
        take_port(settings.bind, settings.port) as listening,
        closing(LoopThread()) as loop,
    ):
        answering = loop.start(_serve(_application(progress, registry), listening))
        address = f"http://{address_of(listening)}"
        _log.info("web.listening", address=address)
        try:
            yield address
        finally:
            answering.cancel()


async def _serve(app: web.Application, listening: socket.socket) -> None:
    async with serving(app, WebLimits(), listening):
        await asyncio.Event().wait()


def _application(progress: TableProgress, registry: CollectorRegistry) -> web.Application:
    async def livez(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def readyz(_: web.Request) -> web.Response:
        problems = progress.status().problems
        body = {"ready": not problems, "problems": problems}
        return web.json_response(body, status=503 if problems else 200)

    async def metrics(_: web.Request) -> web.Response:
        kind = {hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=kind)

    async def tables(_: web.Request) -> web.Response:
        document = msgspec.json.encode(progress.status())
        return web.Response(body=document, content_type="application/json")

    app = web.Application()
    for handler in (livez, readyz, metrics, tables):
        app.router.add_get(f"/{handler.__name__}", handler)
    return app
