"""The standard variables of OpenTelemetry, looked at before its SDK reads them.

The SDK takes a default for some odd values, ends in a traceback for others, and finds others
when it pushes for the first time. All are refused here, at the start. Limits: what only the
exporter of another package reads is left to that.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from urllib.parse import urlsplit

_MAX_SHOWN = 60
_SAMPLERS = ("always_on", "always_off", "traceidratio")
_OTLP = r"OTEL_EXPORTER_OTLP_(TRACES_|METRICS_|LOGS_)?"


def odd_variables(environ: Mapping[str, str], *, pushing: bool) -> Iterator[str]:
    """Yield a line for each variable whose value OpenTelemetry cannot use.

    An empty one counts as none. If nothing is pushed, what only exporters read is no fault.
    """
    read = (*_ALWAYS, *_PUSHING) if pushing else _ALWAYS
    for name, value in sorted(environ.items()):
        for pattern, check in read:
            if value.strip() and re.fullmatch(pattern, name):
                wanted = check(value.strip())
                if wanted is not None:
                    yield f"{name} in the environment should be {wanted}{_shown(name, value)}"


def _shown(name: str, value: str) -> str:
    """Show neither headers nor passwords in an address."""
    if name.endswith("HEADERS"):
        return ""
    shown = repr(re.sub("//.*@", "//...@", value))
    return "; it is " + (f"{shown[:_MAX_SHOWN]}..." if len(shown) > _MAX_SHOWN else shown)


def _number(least: float, most: float, kind: type[int] | type[float], wanted: str) -> "_Check":
    def check(value: str) -> str | None:
        try:
            return None if least <= kind(value) <= most else wanted
        except ValueError:
            return wanted

    return check


def _one_of(*names: str) -> "_Check":
    wanted = " or ".join(names)
    return lambda value: None if value.lower() in names else wanted


def _pairs(value: str) -> str | None:
    pairs = [x.partition("=") for x in value.split(",") if x.strip()]
    named = all(key.strip() and equals for key, equals, _ in pairs)
    return None if named else "KEY=VALUE, several of them with commas between"


def _file(value: str) -> str | None:
    return None if Path(value).is_file() else "a file that is there"


def _endpoint(value: str) -> str | None:
    """gRPC takes addresses without a scheme, and others of its own."""
    try:
        parts = urlsplit(value if "://" in value else f"//{value}")
        right = bool(parts.hostname) and parts.port != 0 and " " not in value
    except ValueError:
        right = False
    return None if right else "an address, as http://HOST:4318"


_Check = Callable[[str], str | None]
_ALWAYS: tuple[tuple[str, _Check], ...] = (
    ("OTEL_RESOURCE_ATTRIBUTES", _pairs),
    ("OTEL_METRICS_EXEMPLAR_FILTER", _one_of("always_on", "always_off", "trace_based")),
    (r"OTEL_\w+_LIMIT", _number(0, inf, int, "a whole number from 0 on")),
)
_PUSHING: tuple[tuple[str, _Check], ...] = (
    (r"OTEL_(BSP|BLRP)_\w+", _number(1, inf, int, "a whole number from 1 on")),
    (
        r"OTEL_METRIC_EXPORT_(INTERVAL|TIMEOUT)",
        _number(1, 10**9, float, "a number of milliseconds from 1 on"),
    ),
    (rf"{_OTLP}TIMEOUT", _number(0.001, 10**6, float, "a number of seconds above 0")),
    (rf"{_OTLP}ENDPOINT", _endpoint),
    (rf"{_OTLP}PROTOCOL", _one_of("grpc", "http/protobuf")),
    (rf"{_OTLP}COMPRESSION", _one_of("none", "gzip", "deflate")),
    (rf"{_OTLP}(CERTIFICATE|CLIENT_CERTIFICATE|CLIENT_KEY)", _file),
    (rf"{_OTLP}HEADERS", _pairs),
    (rf"{_OTLP}TEMPORALITY_PREFERENCE", _one_of("cumulative", "delta", "lowmemory")),
    (
        rf"{_OTLP}DEFAULT_HISTOGRAM_AGGREGATION",
        _one_of("explicit_bucket_histogram", "base2_exponential_bucket_histogram"),
    ),
    (
        r"OTEL_TRACES_SAMPLER",
        _one_of(*_SAMPLERS, *(f"parentbased_{x}" for x in _SAMPLERS)),
    ),
)
