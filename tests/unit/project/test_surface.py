"""How much there is to know of commands: a bound goes down with what it counts, never up."""

from collections.abc import Iterator
from typing import Any

from click import Context
from typer.main import get_command

from changefeed.cli.app import app

SHARED = {
    *("--config", "--set", "--feed", "--leases", "--observer", "--option", "--directory"),
    *("--help", "--processor"),
}


def commands(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    """Yield all that can be run with their names, groups left out."""
    if not hasattr(command, "list_commands"):
        yield " ".join(names), command
        return
    context = Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), *names, name)


def test_there_are_no_more_commands_and_flags_of_their_own() -> None:
    found = dict(commands(get_command(app)))
    given = [x.opts[0] for one in found.values() for x in one.params]
    flags = [x for x in given if x.startswith("--")]
    assert len(found) <= 29
    assert len([x for x in flags if x not in SHARED]) <= 52
