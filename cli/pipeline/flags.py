"""The flags of the commands of a pipeline, and the settings they make."""

from dataclasses import dataclass
from typing import Annotated

import typer

from changefeed.cli.flags import ObserverFlags, Sets, SettingsFlags
from changefeed.pipeline.settings import PipelineSettings, load_settings


@dataclass(frozen=True, kw_only=True)
class PipelineFlags(SettingsFlags):
    """The flags of all commands of a pipeline."""

    feed: Annotated[
        str | None,
        typer.Option(
            "--feed", help="Where changes come from: eventlog:DIRECTORY, brokers://…, …"
        ),
        Sets(("feed",)),
    ] = None
    directory: Annotated[
        str | None,
        typer.Option("--directory", help="Where tables and checkpoints are kept."),
        Sets(("directory",)),
    ] = None

    def settings(self) -> PipelineSettings:
        """Merge flags, environment and file. Raise ``UserError`` for what is wrong in them."""
        return load_settings(self.config, self.nested())


@dataclass(frozen=True, kw_only=True)
class ObserveFlags(PipelineFlags, ObserverFlags):
    """The flags of what runs an observer."""
