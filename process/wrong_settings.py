"""What is wrong with settings, in the words and names of whoever wrote them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .settings_list import names

_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where settings were taken from, the first that has a value winning."""

    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    prefix: str
    file: Path | None

    def of(self, path: tuple[str, ...]) -> str:
        """Say where the value of a setting comes from. Lists come from one place whole."""
        path = tuple(takewhile(lambda x: not x.isdigit(), path))
        if _has(self.flags, path):
            return "the command line"
        for name in self.environ:
            if name.upper() == self.variable(path):
                return name
        return "the defaults" if self.file is None else str(self.file)

    def variable(self, path: tuple[str, ...]) -> str:
        """Return the name that a setting has in the environment."""
        return self.prefix + "__".join(path).upper()


def wrong_settings(model: type, error: ValidationError, sources: Sources) -> list[str]:
    """Return a line for each setting that is wrong."""
    known = set(names(model))
    by_name = groupby(error.errors(), lambda x: _known_part(x, known))
    return [_line(path, list(errors), sources, known) for path, errors in by_name]


def unknown_variables(
    model: type, environ: Mapping[str, str], prefix: str, neighbours: Collection[str]
) -> list[str]:
    """Return a line for each variable that looks like a setting, and is none.

    Those without a double underscore are left alone: an orchestrator may have made them.
    So are sections of ``neighbours``.
    """
    sections = sorted({path[0] for path in names(model)})
    return list(_strangers(environ, prefix, sections, neighbours))


def _strangers(
    environ: Mapping[str, str], prefix: str, sections: list[str], neighbours: Collection[str]
) -> Iterator[str]:
    for variable in sorted(environ):
        if not variable.upper().startswith(prefix):
            continue
        section, inner, _ = variable.upper().removeprefix(prefix).lower().partition("__")
        if section not in (*sections, *neighbours) and (inner or prefix.endswith("__")):
            kind = "section" if inner else "setting"
            yield (
                f"the environment has {variable}, but there is no {kind} "
                f"{section!r} of settings: there are {', '.join(sections)}"
            )


def _known_part(error: ErrorDetails, known: set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the name of the setting; what follows in it is pydantic's own.

    But for parts of a list: its numbers tell which of them is meant.
    """
    path = tuple(str(x) for x in error["loc"])
    if error["type"] == "extra_forbidden" or any(isinstance(x, int) for x in error["loc"]):
        return path
    while path and path not in known:
        path = path[:-1]
    return path


def _line(
    path: tuple[str, ...],
    errors: list[ErrorDetails],
    sources: Sources,
    known: Collection[tuple[str, ...]],
) -> str:
    name, source = ".".join(path), sources.of(path)
    if errors[0]["type"] == "extra_forbidden":
        near = get_close_matches(name, [".".join(x) for x in known], n=1)
        advice = f"; did you mean {near[0]}?" if near else ""
        return f"{name} (from {source}): there is no such setting{advice}"
    if errors[0]["type"] == "missing":
        variable = sources.variable(path)
        return f"{name}: there is none; name it with a flag, in {variable} or in the file"
    texts = [x["msg"].removeprefix("Value error, ") for x in errors]
    allowed = "should " + " or ".join(x.removeprefix("Input should ") for x in texts)
    if not texts[0].startswith("Input should "):
        allowed = texts[0]
    given = errors[0]["input"]
    if isinstance(given, Mapping) or not isinstance(given, str | int | float):
        return f"{name}: {allowed}"  # the part that is wrong is named in the text
    shown = repr(given)
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}..."
    return f"{name} (from {source}): {allowed}; it is {shown}"


def _has(flags: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    inner: Any = flags
    for name in path:
        if not isinstance(inner, Mapping) or name not in inner:
            return False
        inner = inner[name]
    return True
