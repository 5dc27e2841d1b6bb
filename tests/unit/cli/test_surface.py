"""How much there is to know of commands: a bound goes down with what it counts, never up."""

from collections.abc import Iterator
from typing import Any

from click import Context
from typer.main import get_command

from changefeed.cli.app import app

SHARED = {
    *("--config", "--set", "--feed", "--leases", "--observer", "--option", "--directory"),
    "--help",
}


def commands(command: Any) -> Iterator[Any]:
    """Yield all that can be run, groups left out."""
    if not hasattr(command, "list_commands"):
        yield command
        return
    context = Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name))


def test_there_are_no_more_commands_and_flags_of_their_own() -> None:
    found = list(commands(get_command(app)))
    flags = [x.opts[0] for one in found for x in one.params if x.opts[0].startswith("--")]
    assert len(found) <= 29
    assert len([x for x in flags if x not in SHARED]) <= 53
