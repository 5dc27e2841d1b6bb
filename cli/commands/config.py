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
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a file with all settings and their defaults, for --config."""
    from changefeed.cli.config_file import settings_text, write_config

    with exit_on_error():
        names = {Kind.HOST: "changefeed.toml"}
        name = file or names.get(kind, f"{kind}.toml")
        write_config(name, settings_text(kind.value), force=force)
