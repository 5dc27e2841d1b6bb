"""What a pipeline reports over HTTP, at the addresses of the host's endpoints.

    /livez    200 as long as the process answers
    /readyz   200, or 503 with what is wrong: queries that wait for their feed
    /metrics  for Prometheus
    /tables   how far each table is, for the page of a fleet (``web.pipelines`` of its hosts)

There is no access control. It is this machine only, unless ``web.bind`` says otherwise. The
server has a thread and an event loop of its own, and the limits of a host's endpoints.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import hdrs, web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.progress import Board, TableSeen
from changefeed.pipeline.settings import WebSettings
from changefeed.runtime.logs import get_logger
from changefeed.runtime.web_server import WebLimits, address_of, serving, take_port

_log = get_logger()


@contextmanager
def served(settings: WebSettings, board: Board, registry: CollectorRegistry) -> Iterator[None]:
    """Answer until the block is left, if a port was named.

    Raise ``PipelineRefused`` if it cannot be had.
    """
    if settings.port is None:
        yield
        return
    with listening(settings.bind, settings.port, board, registry):
        yield


@contextmanager
def listening(bind: str, port: int, board: Board, registry: CollectorRegistry) -> Iterator[str]:
    """Answer until the block is left; yield the address."""
    try:
        taken = take_port(bind, port)
    except OSError as error:
        raise PipelineRefused(
            f"cannot listen at {bind}, port {port}: {error}. Choose another "
            f"(web.bind, web.port), or 0 for any that is free"
        ) from error
    with taken:
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        app = _application(board, registry)
        thread = threading.Thread(
            target=loop.run_until_complete,
            args=(_serve(app, taken, stop),),
            name="web",
            daemon=True,
        )
        thread.start()
        address = f"http://{address_of(taken)}"
        _log.info("web.listening", address=address)
        try:
            yield address
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()


async def _serve(app: web.Application, listening: socket.socket, stop: asyncio.Event) -> None:
    async with serving(app, WebLimits(), listening):
        await stop.wait()


def _application(board: Board, registry: CollectorRegistry) -> web.Application:
    async def respond(request: web.Request) -> web.Response:
        status, kind, body = answer(request.path, board, registry)
        return web.Response(status=status, body=body, headers={hdrs.CONTENT_TYPE: kind})

    app = web.Application()
    app.router.add_get("/{path:.*}", respond)
    return app


def answer(path: str, board: Board, registry: CollectorRegistry) -> tuple[int, str, bytes]:
    """Return the status, the type and the body for a path."""
    if path == "/metrics":
        return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
    if path == "/livez":
        return 200, "application/json", json.dumps({"alive": True}).encode()
    if path == "/readyz":
        problems = [f"{x.table}: {x.trouble}" for x in board.seen() if x.trouble is not None]
        body = json.dumps({"ready": not problems, "problems": problems}).encode()
        return 503 if problems else 200, "application/json", body
    if path == "/tables":
        return 200, "application/json", json.dumps([_shown(x) for x in board.seen()]).encode()
    return 404, "text/plain", b"there are: /livez, /readyz, /metrics, /tables\n"


def _shown(table: TableSeen) -> dict[str, object]:
    return {
        "table": table.table,
        "changes": table.changes,
        "rate": table.rate,
        "lag": table.lag,
        "trouble": table.trouble,
    }
