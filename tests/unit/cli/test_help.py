"""The help of commands, as it is shown."""

import inspect

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from tests.support.commands import every_command

ALL = {name: x.callback for name, x in every_command().items() if name != "emulator"}
"""The emulator's help is its own."""


@pytest.mark.parametrize("command", ALL)
def test_a_help_shows_each_word_that_was_written_and_takes_none_for_markup(
    command: str,
) -> None:
    written = inspect.cleandoc(ALL[command].__doc__).replace("\\[", "[")
    line = [*command.split(), "--help"]
    shown = CliRunner().invoke(app, line, env={"COLUMNS": "200"}).output
    assert " ".join(written.split()) in " ".join(shown.split())
    assert "[[" not in shown, "typer puts brackets round what may be left out"


@pytest.mark.parametrize(("command", "default"), [("doctor", "25s"), ("range merge", "1m")])
def test_a_duration_is_shown_as_it_may_be_written(command: str, default: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert f"[default: ({default})]" in shown.output
