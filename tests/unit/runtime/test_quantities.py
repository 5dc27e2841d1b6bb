"""Durations and sizes, as flags and settings take them."""

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.host.settings import load_settings
from changefeed.runtime.errors import UserError
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


@pytest.mark.parametrize("text", ["", "7w", "-1d", "inf", "nan", "1e400", "h", "9" * 16 + "d"])
def test_what_is_no_duration_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="12h"):
        seconds(text)


@pytest.mark.parametrize("text", ["", "64MB", "-1k", "inf", "0.3", "MiB"])
def test_what_is_no_size_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="64MiB"):
        size(text)


def test_a_setting_takes_a_duration_with_its_unit_and_refuses_another() -> None:
    assert load_settings(None, {"leases": {"expiration": "2m"}}).leases.expiration == 120
    observer = {"checkpoint": "90s", "timeout": "1h"}
    found = load_settings(None, {"observer": observer}).observer
    assert (found.checkpoint, found.timeout) == (90, 3600)
    with pytest.raises(UserError, match=r"leases\.expiration.*30m"):
        load_settings(None, {"leases": {"expiration": "7w"}})


@pytest.mark.parametrize(
    "command",
    [
        "doctor --watch=7w",
        "doctor --watch=2h",  # out of bounds
        "range merge a b --wait=7w",
        "log retain brokers://h:1/c --for=0d",
        "log retain brokers://h:1/c --bytes=0",
        "log retain brokers://h:1/c --bytes=64MB",
    ],
)
def test_a_flag_that_is_no_quantity_ends_a_command_with_2(command: str) -> None:
    found = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
    flag = next(x for x in command.split() if x.startswith("--")).partition("=")[0]
    assert (found.exit_code, f"Invalid value for '{flag}'" in found.output) == (2, True)
