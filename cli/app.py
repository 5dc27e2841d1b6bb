"""All commands. Each is a module, which is imported when the command is called:
``changefeed --version`` needs no Cosmos DB client, and ``changefeed run`` no Spark.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from changefeed import __version__

COMMANDS: Mapping[str, str] = {
    "run": "changefeed.cli.commands.run:run",
    "status": "changefeed.cli.commands.status:status",
    "monitor": "changefeed.cli.commands.monitor:monitor",
    "pause": "changefeed.cli.commands.pause:pause",
    "resume": "changefeed.cli.commands.pause:resume",
    "reset": "changefeed.cli.commands.reset:reset",
    "range": "changefeed.cli.commands.range:range_",
    "positions": "changefeed.cli.commands.positions:positions",
    "dead-letters": "changefeed.cli.commands.dead_letters:dead_letters",
    "doctor": "changefeed.cli.commands.doctor:doctor",
    "config": "changefeed.cli.commands.config:config",
    "produce": "changefeed.cli.commands.produce:produce",
    "log": "changefeed.cli.commands.log:log",
    "emulator": "changefeed.cli.emulator:app",
    "broker": "changefeed.cli.commands.broker:broker",
    "pipeline": "changefeed.cli.commands.pipeline:pipeline",
}
"""Where each command is: a function, or a group of commands."""


class LazyCommands(TyperGroup):
    """A group that imports a command when it is asked for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = cast("dict[str, Any]", dict.fromkeys(COMMANDS))  # their names suffice

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        found = getattr(import_module(module), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name)(found)
            found = alone
        command = get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="changefeed",
    cls=LazyCommands,
    help="A change feed processor: hosts share the ranges of a feed through leases.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if wanted:
        typer.echo(f"changefeed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
