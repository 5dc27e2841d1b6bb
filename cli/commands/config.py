"""``changefeed config``: a file with all settings, each with what is said about it."""

import enum
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error


class Kind(enum.StrEnum):
    """Whose settings."""

    HOST = "host"
    PIPELINE = "pipeline"
    BROKER = "broker"


def config(
    kind: Annotated[Kind, typer.Argument(help="Whose settings.", show_choices=True)],
    file: Annotated[
        str | None,
        typer.Argument(
            help="The file to write; - is standard output.",
            show_default="changefeed.toml, KIND.toml",
        ),
    ] = None,
) -> None:
    """Write a file with all settings and their defaults, for --config."""
    from changefeed.cli.config_file import settings_text
    from changefeed.cli.io.files import write_out
    from changefeed.cli.io.report import say

    with exit_on_error():
        names = {Kind.HOST: "changefeed.toml"}
        name = file or names.get(kind, f"{kind}.toml")
        if write_out(name, settings_text(kind.value).encode()):
            say(f"wrote {name}")
