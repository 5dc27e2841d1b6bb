"""The command line. Each command is a module; ``mistakes`` says how commands end."""

from importlib.metadata import version
from typing import Annotated

import typer

from .hosts import hosts
from .init_config import init_config
from .produce import produce
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
app.command()(produce)
app.command("init-config")(init_config)
