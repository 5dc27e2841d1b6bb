"""A receiver of OTLP over HTTP, on the messages of OpenTelemetry's own protocol package."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_FORMS: dict[str, tuple[Any, Any]] = {
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}


@dataclass
class Received:
    """What has come, and how the receiver behaves: ``status`` answers, ``hangs`` does not."""

    url: str = ""
    status: int = 200
    hangs: bool = False
    requests: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """What has a host push everything here, soon."""
        return {
            **{f"OTEL_{x}_EXPORTER": "otlp" for x in ("TRACES", "METRICS", "LOGS")},
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_BLRP_SCHEDULE_DELAY": "100",
        }

    def spans(self) -> list[Any]:
        return [
            span
            for resource in self._all("/v1/traces", "resource_spans")
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> list[Any]:
        return [
            metric
            for resource in self._all("/v1/metrics", "resource_metrics")
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]

    def logs(self) -> list[Any]:
        return [
            record
            for resource in self._all("/v1/logs", "resource_logs")
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def resources(self) -> list[dict[str, Any]]:
        return [
            attributes(x.resource)
            for path, kind in (("/v1/traces", "resource_spans"), ("/v1/logs", "resource_logs"))
            for x in self._all(path, kind)
        ]

    def _all(self, path: str, kind: str) -> list[Any]:
        return [
            x
            for at, request in list(self.requests)
            if at == path
            for x in getattr(request, kind)
        ]


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a message, as plain values."""
    return {x.key: getattr(x.value, x.value.WhichOneof("value")) for x in of.attributes}


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    """Receive at a free port of this machine until the block is left."""
    received, left = Received(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request, response = _FORMS[self.path]
            received.requests.append((self.path, request.FromString(body)))
            if received.hangs:
                left.wait()
                return
            answer = response().SerializeToString()
            self.send_response(received.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield received
    finally:
        left.set()
        server.shutdown()
        thread.join()
        server.server_close()
