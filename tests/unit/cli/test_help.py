"""The help of commands, as it is shown."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from changefeed.cli.app import app


def callbacks(
    command: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command.callback
        return
    for name in command.list_commands(None):
        yield from callbacks(command.get_command(None, name), (*path, name))


ALL = {x: y for x, y in callbacks(get_command(app)) if x != ("emulator",)}
"""The emulator's help is its own."""


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_help_shows_each_word_that_was_written_and_takes_none_for_markup(
    path: tuple[str, ...],
) -> None:
    written = inspect.cleandoc(ALL[path].__doc__).replace("\\[", "[")
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).output
    assert " ".join(written.split()) in " ".join(shown.split())
    assert "[[" not in shown, "typer puts brackets round what may be left out"


@pytest.mark.parametrize(("command", "default"), [("doctor", "25s"), ("range merge", "1m")])
def test_a_duration_is_shown_as_it_may_be_written(command: str, default: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert f"[default: ({default})]" in shown.output
