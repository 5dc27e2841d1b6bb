"""The help of commands, as it is shown."""

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("log compact", "pip install 'changefeed-host[segments]'"),
        ("doctor", " With --watch=0, the fleet is not watched."),
    ],
)
def test_no_text_of_a_help_is_taken_for_markup(command: str, said: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert said in shown.output
