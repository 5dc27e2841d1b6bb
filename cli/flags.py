"""Flags: declared once, as fields of dataclasses, and how they become settings.

A command names a dataclass as the type of a parameter; ``with_flags`` shows its fields to
typer as flags of the command. A field is the flag of one setting if it is marked with it.
"""

import inspect
import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from changefeed.runtime.errors import UserError

_OPTIONS = ["observer", "options"]


_MAX_CHILDREN = 1024
"""More of them on one machine are a mistyped number."""

Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        max=_MAX_CHILDREN,
        help="Run this many processes (NAME-1, NAME-2, …) under one supervisor.",
    ),
]
"""How many; ``None`` for this process alone."""

StopAtEof = Annotated[
    bool,
    typer.Option(
        "--stop-at-eof", hidden=True, help="Stop when standard input ends, as on SIGTERM."
    ),
]
"""How a child notices that its supervisor is gone."""


@dataclass(frozen=True, slots=True)
class SettingPath:
    """Marks the flag of one setting, which has this path."""

    path: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SettingsFlags:
    """The flags of every command that reads settings."""

    config: Annotated[
        Path | None,
        typer.Option("--config", help="A TOML file with settings (see config)."),
    ] = None
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting (see config)."),
    ] = None

    def nested(self) -> dict[str, Any]:
        """Return what the command line says, nested as the settings are."""
        nested = parse_sets(self.sets or ())
        for name, option in _options(type(self)):
            given = getattr(self, name)
            for path in (x.path for x in option if isinstance(x, SettingPath)):
                if given is not None:
                    put(nested, path, given)
        return nested

    def arguments(self) -> Iterator[str]:
        """Yield the same flags as a command line."""
        for name, option in _options(type(self)):
            given = getattr(self, name)
            (flag,) = (str(x.default) for x in option if isinstance(x, typer.models.OptionInfo))
            if isinstance(given, list):
                yield from (f"{flag}={x}" for x in given)
            elif given is not None:
                yield f"{flag}={given}"


@dataclass(frozen=True, kw_only=True)
class ObserverFlags(SettingsFlags):
    """The flags of every command that calls an observer."""

    observer: Annotated[
        str | None,
        typer.Option(
            "--observer", help="What happens to changes: module:Class, log, jsonl, ..."
        ),
        SettingPath(("observer", "name")),
    ] = None
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="An argument for the observer."),
    ] = None

    def nested(self) -> dict[str, Any]:
        nested = super().nested()
        for text in self.options or ():
            key, value = _pair(text, "--option", "key=value")
            put(nested, [*_OPTIONS, key], _parsed(value))
        return nested


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer see a parameter that is a dataclass as one flag for each of its fields."""
    shown, kinds = list[inspect.Parameter](), dict[str, Any]()
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if not is_dataclass(kind := parameter.annotation):
            shown.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        kinds[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        shown += [
            parameter.replace(
                name=x.name,
                default=x.default,
                annotation=hints[x.name],
                kind=parameter.KEYWORD_ONLY,
            )
            for x in fields(kind)
        ]

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{x.name: given.pop(x.name) for x in fields(kind)})
            for name, kind in kinds.items()
        }
        command(**made, **given)

    vars(called).update(__signature__=inspect.Signature(shown))
    called.__annotations__ = {x.name: x.annotation for x in shown}
    return called


def _options(kind: type[SettingsFlags]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the name of each field, and the metadata of its annotation."""
    hints = get_type_hints(kind, include_extras=True)
    for x in fields(kind):
        yield x.name, hints[x.name].__metadata__


def parse_sets(sets: Sequence[str]) -> dict[str, Any]:
    """Return what several ``--set`` say, nested as the settings are."""
    flags: dict[str, Any] = {}
    for text in sets:
        name, value = _pair(text, "--set", "section.key=value")
        path = _path(name, text)
        of_observer = path[: len(_OPTIONS)] == _OPTIONS
        put(flags, path, _parsed(value) if of_observer else _valued(value))
    return flags


def put(flags: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a nested value; a section that is there takes what a section has. Raise ``UserError``
    where a section on the path is a value.
    """
    *sections, key = path
    inner: Any = flags
    for name in sections:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserError(f"{'.'.join(path)} is set within a value that is set as a whole")
    if isinstance(value, dict) and isinstance(inner.get(key), dict):
        for name, one in value.items():
            put(inner[key], [name], one)
    else:
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
    except (ValueError, RecursionError):
        inner = {}
    path = []
    while isinstance(inner, dict):
        if len(inner) != 1:
            raise UserError(
                f"--set {text}: {name!r} is not the name of a setting; quote a part that has "
                f"other characters than letters, digits, - and _, as in "
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
    except (ValueError, RecursionError):
        return text
