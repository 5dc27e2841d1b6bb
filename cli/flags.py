"""Flags that commands have in common, and how they become settings."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from changefeed.runtime.errors import UserError

Config = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with settings (see init-config).")
]
Feed = Annotated[
    str | None,
    typer.Option("--feed", help="Where changes come from: eventlog:DIRECTORY, cosmos://…"),
]
Observer = Annotated[
    str | None,
    typer.Option("--observer", help="What happens to changes: module:Class, log, jsonl, ..."),
]
Option = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An argument for the observer."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting (see init-config)."),
]


_OPTIONS = ["observer", "options"]


def nested(sets: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    """Return what ``--set`` and ``--option`` say, nested as the settings are."""
    flags: dict[str, Any] = {}
    for text in sets:
        name, value = _pair(text, "--set", "section.key=value")
        path = _path(name, text)
        of_observer = path[: len(_OPTIONS)] == _OPTIONS
        put(flags, path, _parsed(value) if of_observer else _valued(value))
    for text in options:
        key, value = _pair(text, "--option", "key=value")
        put(flags, [*_OPTIONS, key], _parsed(value))
    return flags


def put(flags: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value that stands so deep. Raise ``UserError`` where something else stands."""
    *sections, key = path
    inner: Any = flags
    for name in sections:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserError(f"{'.'.join(path)} is set within a value that is set as a whole")
    inner[key] = value


def _pair(text: str, flag: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UserError(f"{flag} {text}: write it as {form}")
    return key, value


def _path(name: str, text: str) -> list[str]:
    """Part a name as TOML does: a key that has dots itself is quoted."""
    try:
        inner: Any = tomllib.loads(f"{name} = 0")
    except tomllib.TOMLDecodeError:
        inner = {}
    path = []
    while isinstance(inner, dict):
        if len(inner) != 1:
            raise UserError(
                f"--set {text}: {name!r} is no name of a setting; a part of it that has other "
                f"characters than letters, digits, - and _ is quoted, as in "
                f'observer.options."a.b"=1'
            )
        ((key, inner),) = inner.items()
        path.append(key)
    return path


def _valued(text: str) -> Any:
    """Settings convert text themselves; only what has no text form is parsed."""
    return _parsed(text) if text == "null" or text[:1] in ("{", "[") else text


def _parsed(text: str) -> Any:
    """Read numbers, true, false and the like as JSON does; the rest is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
