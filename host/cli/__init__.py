"""The command line. Each command is a module; ``mistakes`` says how commands end."""

from importlib.metadata import version
from typing import Annotated

import typer

from .check import check
from .dead_letters import dead_letters
from .emulator import emulator
from .hosts import hosts
from .init_config import init_config
from .lease_import import leases
from .pause import pause, resume
from .produce import produce
from .release import release
from .reset import reset
from .run import run
from .status import status

app = typer.Typer(
    name="changefeed",
    help="A change feed processor: hosts share the ranges of a feed through leases.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _say_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if wanted:
        typer.echo(f"changefeed {version('changefeed-host')}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command()(run)
app.command()(hosts)
app.command()(status)
app.command()(pause)
app.command()(resume)
app.command()(release)
app.command()(reset)
app.add_typer(dead_letters, name="dead-letters")
app.command()(produce)
app.command("init-config")(init_config)
app.command()(check)
app.add_typer(leases, name="leases")
app.command()(emulator)
