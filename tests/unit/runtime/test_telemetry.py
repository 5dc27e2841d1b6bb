"""Odd variables of OpenTelemetry are refused before anything starts."""

import pytest

from changefeed.runtime.errors import UserError
from changefeed.runtime.telemetry import telemetry
from changefeed.runtime.telemetry_variables import odd_variables

PUSHED = {"OTEL_LOGS_EXPORTER": "console"}
OTLP = "OTEL_EXPORTER_OTLP"
ODD = [
    ("OTEL_RESOURCE_ATTRIBUTES", "team"),
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", "-1"),
    ("OTEL_SPAN_LINK_COUNT_LIMIT", "many"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "abc"),
    ("OTEL_METRIC_EXPORT_TIMEOUT", "-5"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ("OTEL_BLRP_SCHEDULE_DELAY", "1.5"),
    ("OTEL_TRACES_SAMPLER", "sometimes"),
    ("OTEL_METRICS_EXEMPLAR_FILTER", "some"),
    (f"{OTLP}_ENDPOINT", "http://[::1"),
    (f"{OTLP}_ENDPOINT", "http://"),
    (f"{OTLP}_TRACES_ENDPOINT", "http://collector:port"),
    (f"{OTLP}_PROTOCOL", "http/json"),
    (f"{OTLP}_METRICS_PROTOCOL", "smtp"),
    (f"{OTLP}_TIMEOUT", "10s"),
    (f"{OTLP}_LOGS_TIMEOUT", "-1"),
    (f"{OTLP}_COMPRESSION", "zip"),
    (f"{OTLP}_CERTIFICATE", "/nowhere/ca.pem"),
    (f"{OTLP}_LOGS_CLIENT_KEY", "/nowhere/key.pem"),
    (f"{OTLP}_METRICS_TEMPORALITY_PREFERENCE", "long"),
    (f"{OTLP}_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "none"),
]


def refusal(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> str:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)  # the SDK looks there itself
    with pytest.raises(UserError) as caught, telemetry("changefeed", "anna", environ):
        pytest.fail("it has started")
    return str(caught.value)


def test_all_odd_variables_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(monkeypatch, {**PUSHED, **dict(ODD)})
    assert [x for x, _ in ODD if x not in said] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [(f"{OTLP}_HEADERS", "Bearer hunter2"), (f"{OTLP}_ENDPOINT", "http://me:hunter2@")],
)
def test_what_may_be_a_secret_is_not_shown(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusal(monkeypatch, {**PUSHED, name: value})
    assert name in said
    assert "hunter2" not in said


def test_variables_that_do_not_fit_each_other_are_refused_as_the_sdk_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = {"OTEL_BLRP_MAX_QUEUE_SIZE": "10", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE": "20"}
    assert "max_export_batch_size" in refusal(monkeypatch, {**PUSHED, **odd})


@pytest.mark.parametrize(
    ("protocol", "package"),
    [("http/protobuf", "'changefeed-host[otlp]'"), ("grpc", "opentelemetry-exporter-otlp")],
)
def test_an_exporter_that_is_missing_is_installed_by_the_extra_that_has_it(
    protocol: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changefeed.runtime.telemetry.entry_points", lambda **_: ())
    pushed = {"OTEL_LOGS_EXPORTER": "otlp", f"{OTLP}_PROTOCOL": protocol}
    assert f"pip install {package}" in refusal(monkeypatch, pushed)


@pytest.mark.parametrize(
    "environ",
    [
        {**PUSHED, f"{OTLP}_ENDPOINT": "collector:4317", f"{OTLP}_PROTOCOL": "grpc"},
        {**PUSHED, f"{OTLP}_HEADERS": "a=b,c=d%20e", f"{OTLP}_CERTIFICATE": __file__},
        {**PUSHED, "OTEL_RESOURCE_ATTRIBUTES": "a=b,", "OTEL_BSP_SCHEDULE_DELAY": "100"},
        {**PUSHED, f"{OTLP}_COMPRESSION": "", "OTEL_TRACES_SAMPLER": " "},
        {f"{OTLP}_PROTOCOL": "http/json", f"{OTLP}_CERTIFICATE": "/nowhere/ca.pem"},
    ],
    ids=["grpc", "headers", "attributes", "empty", "not pushed"],
)
def test_what_opentelemetry_can_use_or_does_not_read_is_no_fault(
    environ: dict[str, str],
) -> None:
    assert list(odd_variables(environ, pushing="OTEL_LOGS_EXPORTER" in environ)) == []
