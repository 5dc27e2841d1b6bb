"""The flags of the commands that deal with hosts, and the settings they make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.flags import ObserverFlags, SettingPath, SettingsFlags, put

if TYPE_CHECKING:
    from changefeed.host.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ConfigFlags(SettingsFlags):
    # A pod names its file once, for its host and for what a person runs beside it.
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            envvar="CHANGEFEED_CONFIG",
            help="A TOML file with settings (see config).",
        ),
    ] = None

    processors: Annotated[
        list[str] | None,
        typer.Option(
            "--processor", metavar="NAME", help="Only this processor of the settings."
        ),
    ] = None

    def settings(self) -> "Settings":
        """Merge flags, environment and file into the settings of one processor. Raise
        ``UserError`` for what is wrong in them, and where there are several processors.
        """
        from changefeed.host.settings import load_settings  # noqa: PLC0415 - help needs no settings

        return load_settings(self.config, self.nested(), self.processors or ())

    def each_settings(self) -> "Mapping[str, Settings]":
        """Return the same for each processor, or for those that were chosen."""
        from changefeed.host.settings import load_processors  # noqa: PLC0415 - as above

        return load_processors(self.config, self.nested(), self.processors or ())


@dataclass(frozen=True, kw_only=True)
class FeedFlags(ConfigFlags):
    """The flags of every command about a fleet: all take the same, whatever they read."""

    leases: Annotated[
        str | None,
        typer.Option("--leases", help="Where leases are kept: sqlite:FILE, cosmos://…"),
        SettingPath(("leases", "address")),
    ] = None
    feed: Annotated[
        str | None,
        typer.Option("--feed", help="Where changes come from: eventlog:DIRECTORY, cosmos://…"),
        SettingPath(("feed", "address")),
    ] = None

    def nested(self) -> dict[str, Any]:
        nested = super().nested()
        if self.leases is not None:  # it goes before two stores that are named elsewhere
            put(nested, ["leases", "checkpoints"], None)
        return nested


@dataclass(frozen=True, kw_only=True)
class ReplayFlags(ConfigFlags, ObserverFlags):
    """The flags of a command that calls an observer without being a host."""


@dataclass(frozen=True, kw_only=True)
class HostFlags(FeedFlags, ObserverFlags):
    """The flags of a host."""

    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            help="Where ranges without a lease start: beginning, now, snapshot, a time.",
        ),
        SettingPath(("feed", "start")),
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", help="The host's name, unique within the fleet."),
        SettingPath(("host", "name")),
    ] = None

    def arguments_of_child(self) -> Iterator[str]:
        """Yield the flags for a host of several on one machine; it gets a name of its own."""
        return replace(self, name=None).arguments()
