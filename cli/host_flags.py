"""What the commands that deal with hosts are told, and the settings that makes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from changefeed.cli.flags import nested, put
from changefeed.host.settings import Settings, load_settings

Leases = Annotated[
    str | None, typer.Option("--leases", help="Where leases are kept: sqlite:FILE, cosmos://…")
]
Name = Annotated[
    str | None, typer.Option("--name", help="The host's name, its own within the fleet.")
]
Start = Annotated[
    str | None,
    typer.Option("--start", help="Where ranges without a lease start: beginning, now, a time."),
]
CreateLeases = Annotated[
    bool,
    typer.Option("--create-lease-container", help="Create it in Cosmos DB if it is not there."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The flags of one command, as given."""

    config: Path | None = None
    feed: str | None = None
    leases: str | None = None
    observer: str | None = None
    name: str | None = None
    start: str | None = None
    create_leases: bool = False
    options: Sequence[str] = ()
    sets: Sequence[str] = ()

    def settings(self) -> Settings:
        """Merge flags, environment and file. Raise ``UserError`` for what is wrong in them."""
        return load_settings(self.config, self.flags())

    def flags(self) -> dict[str, Any]:
        """Return what was said on the command line, nested as the settings are."""
        flags = nested(self.sets, self.options)
        for name, given in self._named():
            put(flags, name, given)
        if self.create_leases:
            put(flags, ["leases", "create_container"], True)
        return flags

    def arguments(self) -> list[str]:
        """Return the same choices as a command line, but for the name."""
        single = (
            ("--config", self.config),
            ("--feed", self.feed),
            ("--leases", self.leases),
            ("--observer", self.observer),
            ("--start", self.start),
        )
        several = (("--option", self.options), ("--set", self.sets))
        return [
            *(f"{flag}={given}" for flag, given in single if given is not None),
            *(["--create-lease-container"] if self.create_leases else []),
            *(f"{flag}={given}" for flag, all_given in several for given in all_given),
        ]

    def _named(self) -> Iterator[tuple[list[str], str | None]]:
        if self.feed is not None:
            yield ["feed", "address"], self.feed
        if self.start is not None:
            yield ["feed", "start"], self.start
        if self.name is not None:
            yield ["host", "name"], self.name
        if self.observer is not None:
            yield ["observer", "name"], self.observer
        if self.leases is not None:
            yield ["leases", "container"], self.leases
            # One container, said here, goes before two stores that are said elsewhere.
            yield ["leases", "ownership"], None
            yield ["leases", "checkpoints"], None
