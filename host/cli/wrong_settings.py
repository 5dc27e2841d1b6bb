"""What is wrong with settings, in the words and names of whoever wrote them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from host.settings_list import names

_PREFIX = "CHANGEFEED_"
_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where settings were taken from, the first that has a value winning."""

    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    file: Path | None

    def of(self, path: tuple[str, ...]) -> str:
        """Say where the value of a setting comes from."""
        if _has(self.flags, path):
            return "the command line"
        variable = _PREFIX + "__".join(path).upper()
        for name in self.environ:
            if name.upper() == variable:
                return name
        return "the defaults" if self.file is None else str(self.file)


def wrong_settings(error: ValidationError, sources: Sources) -> list[str]:
    """Return a line for each setting that is wrong."""
    known = set(names())
    by_name = groupby(error.errors(), lambda x: _known_part(x, known))
    return [_line(path, list(errors), sources) for path, errors in by_name]


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that looks like a setting of a section we lack.

    Those without a double underscore are left alone: an orchestrator may have made them.
    """
    sections = sorted({path[0] for path in names()})
    return list(_strangers(environ, sections))


def _strangers(environ: Mapping[str, str], sections: list[str]) -> Iterator[str]:
    for variable in sorted(environ):
        section, inner, _ = variable.upper().removeprefix(_PREFIX).partition("__")
        if variable.upper().startswith(_PREFIX) and inner and section.lower() not in sections:
            yield (
                f"the environment has {variable}, but there is no section "
                f"{section.lower()!r} of settings: there are {', '.join(sections)}"
            )


def _known_part(error: ErrorDetails, known: set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the name of the setting; what follows in it is pydantic's own."""
    path = tuple(str(x) for x in error["loc"])
    if error["type"] == "extra_forbidden":
        return path
    while path and path not in known:
        path = path[:-1]
    return path


def _line(path: tuple[str, ...], errors: list[ErrorDetails], sources: Sources) -> str:
    name, source = ".".join(path), sources.of(path)
    if errors[0]["type"] == "extra_forbidden":
        near = get_close_matches(name, [".".join(x) for x in names()], n=1)
        advice = f"; did you mean {near[0]}?" if near else ""
        return f"{name} (from {source}): there is no such setting{advice}"
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
