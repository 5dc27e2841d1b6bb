"""What a shell is offered for what has been typed so far."""

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import COMMANDS, app


def offered(typed: str) -> list[str]:
    said = CliRunner().invoke(
        app,
        prog_name="changefeed",
        env={
            "_CHANGEFEED_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
        },
    )
    return said.stdout.split()


def test_commands_are_offered_by_their_beginning() -> None:
    assert offered("changefeed dea") == ["dead-letters"]
    assert offered("changefeed ") == [*COMMANDS]


@pytest.mark.parametrize("command", COMMANDS)
def test_only_changefeed_itself_completes(command: str) -> None:
    said = CliRunner().invoke(app, [command, "--show-completion"])
    assert said.exit_code == 2
    assert "No such option" in said.output
