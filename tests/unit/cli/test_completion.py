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


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("changefeed positions ", ["save", "restore"]),
        ("changefeed status --so", ["--sort"]),
        ("changefeed status --sort=x --fil", ["--filter"]),
        ("changefeed status --sort la", ["lag", "late"]),
    ],
)
def test_commands_of_a_group_flags_and_values_are_offered(typed: str, found: list[str]) -> None:
    assert offered(typed) == found
