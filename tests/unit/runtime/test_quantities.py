"""Durations and sizes, as flags and settings take them."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.host.settings import Settings
from changefeed.log.brokers.settings import BrokerSettings
from changefeed.log.client.access import BrokersSettings
from changefeed.pipeline.settings import PipelineSettings
from changefeed.runtime.quantities import seconds, size


@pytest.mark.parametrize(
    ("text", "found"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("30m", 1800), ("2h", 7200), (" 7D ", 604_800)],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("100", 100),
        ("64MiB", 2**26),
        ("64m", 2**26),
        ("64M", 2**26),
        ("1.5k", 1536),
        ("2t", 2**41),
    ],
)
def test_a_size_has_a_unit_of_two_to_the_power_of_ten_or_is_in_bytes(
    text: str, found: int
) -> None:
    assert size(text) == found


MODELS = (Settings, PipelineSettings, BrokerSettings, BrokersSettings)


def numbers(model: type[BaseModel], kind: str) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the names of the settings that are, or may be, a number of a kind."""
    schema = model.model_json_schema()

    def within(found: Any, path: str) -> Iterator[str]:
        if found.get("type") == kind:
            yield path
        for x in (*found.get("anyOf", ()), *filter(None, [found.get("items")])):
            yield from within(x, path)
        if "$ref" in found:
            found = schema["$defs"][found["$ref"].rpartition("/")[2]]
        for name, x in found.get("properties", {}).items():
            yield from within(x, f"{path}.{name}")

    yield from ((model, x) for x in within(schema, ""))


DURATIONS = [x for model in MODELS for x in numbers(model, "number")]
SIZES = [
    x
    for model in MODELS
    for x in numbers(model, "integer")
    if x[1].endswith(("bytes", ".memory"))
]


@pytest.mark.parametrize(
    ("model", "path", "right", "wrong"),
    [*((*x, "3s", "30MiB") for x in DURATIONS), *((*x, "30MiB", "30s") for x in SIZES)],
)
def test_every_setting_that_is_a_duration_or_a_size_takes_a_unit_of_it(
    model: type[BaseModel], path: str, right: str, wrong: str
) -> None:
    assert mistakes(model, path, right) == []
    assert mistakes(model, path, wrong) != []


def mistakes(model: type[BaseModel], path: str, value: str) -> list[str]:
    """Return what is wrong with a setting, whatever is wrong with those that are not given."""
    nested: Any = value
    for x in reversed(path.split(".")[1:]):
        nested = {x: [nested] if x == "aggregates" else nested}
    try:
        model.model_validate(nested)
    except ValidationError as error:
        return [x["msg"] for x in error.errors() if x["type"] != "missing"]
    return []


@pytest.mark.parametrize(
    "command",
    [
        "doctor --watch=7w",
        "doctor --watch=2h",  # out of bounds
        "doctor --watch=inf",
        "range merge a b --wait=7w",
        "range merge a b --wait=nan",
        "range merge a b --wait=1e400",
        "range merge a b --wait=-1",
        "log retain brokers://h:1/c --for=0d",
        "log retain brokers://h:1/c --bytes=0",
        "log retain brokers://h:1/c --bytes=64MB",
    ],
)
def test_a_flag_that_is_no_quantity_ends_a_command_with_2(command: str) -> None:
    found = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
    flag = next(x for x in command.split() if x.startswith("--")).partition("=")[0]
    assert (found.exit_code, f"Invalid value for '{flag}'" in found.output) == (2, True)
