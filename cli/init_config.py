"""``changefeed init-config``: a file with all settings, each with what is said about it."""

from pathlib import Path
from typing import Annotated

import typer

from changefeed.cli.config_file import config_text, write_config
from changefeed.cli.exit_codes import exit_on_error
from changefeed.host.settings import Settings

HEAD = """\
All settings of a host. A line that begins with # and a name is a setting with its default:
take away the # to set it. Times are in seconds. The environment overrides this file
(CHANGEFEED_LEASES__EXPIRATION=20), and the command line overrides both.
"""


def init_config(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("changefeed.toml"),
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a file with all settings and their defaults, for --config."""
    with exit_on_error():
        write_config(file, config_text(HEAD, Settings), force=force)
