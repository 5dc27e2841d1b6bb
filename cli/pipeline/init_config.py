"""``changefeed pipeline init-config``: a file with all settings, each with what it does."""

from pathlib import Path
from typing import Annotated

import typer

from changefeed.cli.config_file import config_text, write_config
from changefeed.cli.exit_codes import exit_on_error
from changefeed.pipeline.settings import PipelineSettings

HEAD = """\
All settings of a pipeline. A line that begins with # and a name is a setting with its default:
take away the # to set it. Times are in seconds. The environment overrides this file
(CHANGEFEED_PIPELINE__LATEST__INTERVAL=60), and the command line overrides both.
"""


def init_config(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("pipeline.toml"),
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a file with all settings and their defaults, for --config."""
    with exit_on_error():
        write_config(file, config_text(HEAD, PipelineSettings), force=force)
