"""What the commands that deal with hosts are told, and the settings that makes."""

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from host.settings import Settings, load_settings

from .mistakes import Mistake
from .wrong_settings import Sources, unknown_variables, wrong_settings

Config = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with settings (see init-config).")
]
Feed = Annotated[
    str | None,
    typer.Option("--feed", help="Where changes come from: eventlog:DIRECTORY, cosmos://…"),
]
Leases = Annotated[
    str | None, typer.Option("--leases", help="Where leases are kept: sqlite:FILE, cosmos://…")
]
Observer = Annotated[
    str | None,
    typer.Option("--observer", help="What happens to changes: module:Class, log, jsonl, ..."),
]
Name = Annotated[
    str | None, typer.Option("--name", help="The host's name, its own within the fleet.")
]
Option = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An argument for the observer."),
]
Start = Annotated[
    str | None,
    typer.Option("--start", help="Where ranges without a lease start: beginning, now, a time."),
]
CreateLeases = Annotated[
    bool,
    typer.Option("--create-lease-container", help="Create it in Cosmos DB if it is not there."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting (see init-config)."),
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
        """Merge flags, environment and file. Raise ``Mistake`` for what is wrong in them."""
        flags = self.flags()
        sources = Sources(file=self.config, flags=flags, environ=os.environ)
        if self.config is not None:
            _check_readable(self.config)
        if strangers := unknown_variables(os.environ):
            raise Mistake("; ".join(strangers))
        try:
            return load_settings(self.config, flags)
        except ValidationError as error:
            lines = ["wrong settings", *wrong_settings(error, sources)]
            raise Mistake("\n  ".join(lines)) from None
        except SettingsError as error:
            raise Mistake(
                f"an environment variable is not JSON, as that of a whole section must be: "
                f"{error}. Set single values, as in CHANGEFEED_LEASES__EXPIRATION=20"
            ) from error
        except tomllib.TOMLDecodeError as error:
            raise Mistake(f"{self.config} is no TOML: {error}") from error

    def flags(self) -> dict[str, Any]:
        """Return what was said on the command line, nested as the settings are."""
        flags: dict[str, Any] = {}
        for text in self.sets:
            path, value = _pair(text, "--set", "section.key=value")
            _put(flags, path.split("."), _valued(value))
        for name, given in self._named():
            _put(flags, name, given)
        if self.create_leases:
            _put(flags, ["leases", "create_container"], True)
        for text in self.options:
            key, value = _pair(text, "--option", "key=value")
            _put(flags, ["observer", "options", key], _parsed(value))
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


def _check_readable(file: Path) -> None:
    """Read it once for the errors, which would otherwise not be told, or not well."""
    try:
        file.read_text("utf-8")
    except FileNotFoundError:
        raise Mistake(
            f"there is no file {file}; make one with: changefeed init-config {file}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"the settings in {file} cannot be read: {error}") from error


def _pair(text: str, flag: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise Mistake(f"{flag} {text}: write it as {form}")
    return key, value


def _valued(text: str) -> Any:
    """Settings convert text themselves; only what has no text form is parsed."""
    return _parsed(text) if text == "null" or text[:1] in ("{", "[") else text


def _parsed(text: str) -> Any:
    """Read numbers, true, false and the like as JSON does; the rest is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(flags: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *sections, key = path
    inner: Any = flags
    for name in sections:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise Mistake(f"{'.'.join(path)} is set within a value that is set as a whole")
    inner[key] = value
