"""What a pipeline reports over HTTP, at the addresses of the host's endpoints.

    /livez    200 as long as the process answers
    /readyz   200, or 503 with what is wrong: queries that wait for their feed
    /metrics  for Prometheus

There is no access control. It is this machine only, unless ``web.bind`` says otherwise.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.progress import Board
from changefeed.pipeline.settings import WebSettings
from changefeed.runtime.logs import get_logger

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
    with _server(bind, port, board, registry) as server:
        thread = threading.Thread(target=server.serve_forever, name="web", daemon=True)
        thread.start()
        address = f"http://{bind}:{server.server_address[1]}"
        _log.info("web.listening", address=address)
        try:
            yield address
        finally:
            server.shutdown()
            thread.join()


def _server(
    bind: str, port: int, board: Board, registry: CollectorRegistry
) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = answer(self.path, board, registry)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Do not log requests."""

    try:
        return ThreadingHTTPServer((bind, port), Handler)
    except OSError as error:
        raise PipelineRefused(
            f"cannot listen at {bind}, port {port}: {error}. Choose another "
            f"(web.bind, web.port), or 0 for any that is free"
        ) from error


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
    return 404, "text/plain", b"there are: /livez, /readyz, /metrics\n"
