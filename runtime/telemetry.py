"""Metrics, and if wanted traces and logs, by OpenTelemetry: for Prometheus to fetch, or pushed.

Our own processes (``telemetry``) follow their environment. Metrics can always be
fetched at ``/metrics``, unless ``OTEL_METRICS_EXPORTER=none``. What the standard variables
``OTEL_METRICS_EXPORTER``, ``OTEL_TRACES_EXPORTER`` and ``OTEL_LOGS_EXPORTER`` name besides
(``otlp``, ``console``) is pushed, if the package of that exporter is installed; such an
exporter reads the rest of its settings from the standard variables itself, and so do the
sampler and the queue of spans. Pushing is done in threads of its own: a receiver that is away,
slow or full costs what was to be pushed, and nothing else. At the end it has some seconds.

A host embedded in a program (``own_metrics``) counts for itself and changes nothing for the
program.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry

from changefeed.runtime.errors import UserError
from changefeed.runtime.telemetry_variables import odd_variables

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from changefeed.runtime.pushed_logs import PushedLogs

_FLUSH_MILLIS = 3000
_MAX_RANGES_OF_A_HOST = 100_000
"""So many lines of one metric. OpenTelemetry's 2,000 would put the others into one line."""
_OTLP = ("otlp_proto_http", "otlp_proto_grpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What is on: meters, a registry to fetch them from, tracers if spans are pushed anywhere,
    and handlers that push logs.
    """

    meters: MeterProvider
    registry: CollectorRegistry
    tracers: "TracerProvider | None"
    log_handlers: tuple[logging.Handler, ...]


@contextmanager
def telemetry(service: str, instance: str, environ: Mapping[str, str]) -> Iterator[Telemetry]:
    """Make OpenTelemetry's meters count, until the block is left; then push what is left.

    For a process of our own, and once: user code finds the same meters and tracers as
    OpenTelemetry's global ones, and those are what they were first set to. Raise
    ``UserError`` for variables that OpenTelemetry cannot use.
    """
    with _refusing_odd_variables(environ):
        resource = _resource(service, instance)
        registry = CollectorRegistry()
        readers = list(_readers(registry, environ))
        meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        tracers = _tracers(resource, environ)
        logs = _pushed_logs(resource, environ)
    metrics.set_meter_provider(meters)
    if tracers is not None:
        trace.set_tracer_provider(tracers)
    try:
        yield Telemetry(meters=meters, registry=registry, tracers=tracers, log_handlers=logs)
    finally:
        ends: list[Callable[[], object]] = [
            partial(meters.shutdown, timeout_millis=_FLUSH_MILLIS),
            *(x.push_the_rest for x in logs),
        ]
        if tracers is not None:
            ends.append(tracers.shutdown)
        _end_within(_FLUSH_MILLIS / 1000, ends)


@contextmanager
def own_metrics(
    service: str, instance: str
) -> Iterator[tuple[MeterProvider, CollectorRegistry]]:
    """Count apart from everything else in this process, until the block is left."""
    registry = CollectorRegistry()
    reader = _fetched_from(registry)
    meters = MeterProvider([reader], _resource(service, instance), shutdown_on_exit=False)
    try:
        yield meters, registry
    finally:
        meters.shutdown(timeout_millis=_FLUSH_MILLIS)


@contextmanager
def _refusing_odd_variables(environ: Mapping[str, str]) -> Iterator[None]:
    """Look at all variables first: the SDK names one at a time, or none."""
    pushing = any(_pushed_names(x, environ) for x in ("metrics", "traces", "logs"))
    if odd := [*odd_variables(environ, pushing=pushing)]:
        raise UserError("\n  ".join(["wrong variables of OpenTelemetry", *odd]))
    try:
        yield
    except ValueError as error:
        raise UserError(
            f"OpenTelemetry refuses the variables OTEL_... of the environment: {error}"
        ) from error


def _tracers(resource: Resource, environ: Mapping[str, str]) -> "TracerProvider | None":
    exporters = _pushed("traces", environ)
    if not exporters:
        return None
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - few processes push
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        tracers.add_span_processor(BatchSpanProcessor(exporter))
    return tracers


def _pushed_logs(
    resource: Resource, environ: Mapping[str, str]
) -> "tuple[()] | tuple[PushedLogs]":
    exporters = _pushed("logs", environ)
    if not exporters:
        return ()
    from changefeed.runtime.pushed_logs import PushedLogs  # noqa: PLC0415 - few processes push

    return (PushedLogs(resource, exporters),)


def _end_within(seconds: float, ends: Sequence[Callable[[], object]]) -> None:
    """Push what is left, all at once, and wait no longer: a receiver may not answer, and
    what a process is given to stop is needed for leases.
    """
    threads = [Thread(target=x, name="telemetry-end", daemon=True) for x in ends]
    until = monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))


def _resource(service: str, instance: str) -> Resource:
    """Name this process; the user's ``OTEL_RESOURCE_ATTRIBUTES`` go before our names."""
    ours = Resource.create({"service.name": service, "service.instance.id": instance})
    return ours.merge(OTELResourceDetector().detect())


def _readers(registry: CollectorRegistry, environ: Mapping[str, str]) -> Iterator[MetricReader]:
    if _wanted("metrics", environ) != ["none"]:
        yield _fetched_from(registry)
    for exporter in _pushed("metrics", environ):
        yield PeriodicExportingMetricReader(exporter)


def _fetched_from(registry: CollectorRegistry) -> MetricReader:
    """Let Prometheus read from ``registry``, in lines without the name of our scope: with it
    they are twice as long.
    """
    return PrometheusMetricReader(
        registry=registry,
        scope_info_enabled=False,
        cardinality_limits=dict.fromkeys(
            (Counter, Histogram, ObservableGauge), _MAX_RANGES_OF_A_HOST
        ),
    )


def _wanted(signal: str, environ: Mapping[str, str]) -> list[str]:
    names = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").split(",")
    return [x.strip() for x in names if x.strip()]


def _pushed(signal: str, environ: Mapping[str, str]) -> list[Any]:
    """Make the exporters that the environment asks for."""
    return [_exporter(signal, name, environ) for name in _pushed_names(signal, environ)]


def _pushed_names(signal: str, environ: Mapping[str, str]) -> list[str]:
    return [x for x in _wanted(signal, environ) if x not in ("none", "prometheus")]


def _exporter(signal: str, name: str, environ: Mapping[str, str]) -> Any:
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", ""
    )
    if name != "otlp":
        names = [name]
    elif protocol:
        names = [x for x in _OTLP if x.endswith("grpc") == (protocol == "grpc")]
    else:
        names = list(_OTLP)
    for each in names:
        for point in entry_points(group=f"opentelemetry_{signal}_exporter", name=each):
            return point.load()()
    package = f"opentelemetry-exporter-{names[0].replace('_', '-')}"
    if names[0] == _OTLP[0]:
        package = "'changefeed-host[otlp]'"
    raise UserError(
        f"OTEL_{signal.upper()}_EXPORTER asks for {name!r}, which is not installed: "
        f"pip install {package}, or set the variable to none"
    )
