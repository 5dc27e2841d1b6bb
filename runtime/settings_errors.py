"""What is wrong with settings, in the words and names of who wrote them."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from difflib import get_close_matches
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from changefeed.runtime.settings_schema import (
    Entry,
    entries,
    names,
    open_sections,
    secrets,
    sections,
)

_MAX_SHOWN = 60
_PLAIN = {
    "be a valid integer": "be a whole number",
    "be a valid number": "be a number",
    "be a valid string": "be text",
    "be a valid dictionary": "be a table of names and values",
}
_OF_KUBERNETES = re.compile("(tcp|udp|sctp)://")

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where settings were taken from, the first that has a value winning."""

    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    prefix: str
    file: Path | None
    in_file: Mapping[str, Any] = field(default_factory=dict)
    processor: Name = ()
    """What the names of settings of one of several processors begin with."""

    def find(self, name: Name) -> tuple[Name, str]:
        """Return the whole name that a setting has where its value comes from, and say where
        that is. A list comes from one place whole.
        """
        within = _before_a_number(name)
        own = (*self.processor, *within)
        for place in (self._in_flags, self._in_environment, self._in_file):
            for whole in dict.fromkeys((own, within)):
                if (source := place(whole)) is not None:
                    return (*whole, *name[len(within) :]), source
        return name, "the defaults" if self.file is None else str(self.file)

    def _in_flags(self, name: Name) -> str | None:
        return "the command line" if _has(self.flags, name) else None

    def _in_file(self, name: Name) -> str | None:
        return str(self.file) if _has(self.in_file, name) else None

    def _in_environment(self, name: Name) -> str | None:
        by_upper = {x.upper(): x for x in sorted(self.environ)}
        whole = self.variable(name)
        within = next((x for x in by_upper if x.startswith(f"{whole}__")), whole)
        for upper in (whole, within, *(self.variable(x) for x in _sections_of(name))):
            if variable := by_upper.get(upper):
                return variable
        return None

    def variable(self, name: Name) -> str:
        """Return the name that a setting has in the environment."""
        own = self.processor if name[: len(self.processor)] == self.processor else ()
        parts = [x.replace("-", "_") for x in own]  # the name of a processor may have them
        return self.prefix + "__".join((*parts, *name[len(own) :])).upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    known: Collection[Name]
    hidden: Collection[Name]


def wrong_settings(model: type, error: ValidationError, sources: Sources) -> list[str]:
    """Return a line for each setting that is wrong."""
    of_model = _Names(known={*names(model)}, hidden=secrets(model))
    tables = {name for name, x in entries(model).items() if x.has_names}
    tables |= {*open_sections(model)}
    by_name = groupby(error.errors(), lambda x: _known_part(x, of_model.known, tables))
    return [_line(name, list(errors), sources, of_model) for name, errors in by_name]


def not_json(model: type, environ: Mapping[str, str], prefix: str) -> list[str]:
    """Return a line for each variable of a list, a table or a section that is no JSON."""
    forms, known = {}, entries(model)
    for section in (x.path for x in sections(model)):
        inside = (x for x in known if x[: len(section)] == section)
        example = prefix + "__".join(next(inside, (*section, "…"))).upper()
        forms[section] = f"Set single values, as in {example}"
    for name, entry in known.items():
        if entry.is_list:
            forms[name] = 'A list is written as ["a", "b"]'
        elif entry.has_names:
            forms[name] = 'A table is written as {"a": 1}'
    found = []
    for variable, value in sorted(environ.items()):
        form = forms.get(tuple(variable.upper().removeprefix(prefix).lower().split("__")))
        if form is None or not variable.upper().startswith(prefix):
            continue
        try:
            json.loads(value)
        except (ValueError, RecursionError) as error:
            found.append(
                f"{variable} in the environment must be JSON, and is not: {error}. {form}"
            )
    return found


def unknown_variables(
    model: type, environ: Mapping[str, str], prefix: str, foreign_sections: Collection[str]
) -> list[str]:
    """Return a line for each variable that looks like a setting and is none.

    Those without a double underscore are left alone: an orchestrator may have made them.
    So are sections of ``foreign_sections``.
    """
    tops = sorted({name[0] for name in names(model)})
    settings = entries(model)
    found = []
    for variable in sorted(environ):
        if not variable.upper().startswith(prefix):
            continue
        name = tuple(variable.upper().removeprefix(prefix).lower().split("__"))
        if len(name) == 1 and not prefix.endswith("__"):
            continue
        if name[0] not in (*tops, *foreign_sections):
            kind = "section" if len(name) > 1 else "setting"
            found.append(
                f"the environment has {variable}, but there is no {kind} "
                f"{name[0]!r}. Known: {', '.join(tops)}"
            )
        found += _inside_a_setting(variable, name, prefix, settings)
    return found


def ignored_variables(
    model: type, environ: Mapping[str, str], prefix: str, foreign_sections: Collection[str]
) -> list[str]:
    """Return a line for each variable that is a setting, but for single underscores; and one
    for all others that begin as settings do.

    They may be another program's. Kubernetes makes some as well, for a service whose name
    begins as ours: their values are addresses.
    """
    right = {prefix + "__".join(x).upper() for x in names(model)}
    meant = {x.replace("__", "_"): x for x in sorted(right)}
    foreign = {f"{prefix}{x}".upper() for x in foreign_sections}
    found, others = [], []
    for variable, value in sorted(environ.items()):
        name = variable.upper()
        if name in right or name in foreign or not name.startswith(prefix):
            continue
        setting = meant.get(name.replace("__", "_"))
        if setting is not None and not _OF_KUBERNETES.match(value):
            found.append(
                f"{variable} in the environment is not a setting: write it as {setting}, "
                f"with two underscores"
            )
        elif "__" not in name.removeprefix(prefix):
            others.append(variable)
    if others:
        found.append(
            f"the environment has {', '.join(others)}: no setting has such a name, and it is "
            f"ignored. Kubernetes makes such variables, unless enableServiceLinks is false"
        )
    return found


def _inside_a_setting(
    variable: str, name: Name, prefix: str, settings: Mapping[Name, Entry]
) -> Iterator[str]:
    """Yield a line for a name that continues that of a setting: it would be ignored."""
    for length in range(1, len(name)):
        whole = name[:length]
        if whole not in settings:
            continue
        expected = prefix + "__".join(whole).upper()
        if settings[whole].has_names:
            yield (
                f"the environment has {variable}, and names in it would be in lower case: "
                f"set {expected} to all of {'.'.join(whole)}, as JSON"
            )
        else:
            yield (
                f"the environment has {variable}, but {'.'.join(whole)} is one value: "
                f"set {expected}"
            )


def _before_a_number(name: Name) -> Name:
    return tuple(takewhile(lambda x: not x.isdigit(), name))


def _known_part(error: ErrorDetails, known: Collection[Name], tables: Collection[Name]) -> Name:
    """Return the name of the setting; what follows in it is pydantic's own.

    But in a list a number selects the element, and in a table a name does.
    """
    name = tuple(str(x) for x in error["loc"])
    if error["type"] == "extra_forbidden" or any(isinstance(x, int) for x in error["loc"]):
        return name
    while name and name not in known and name[:-1] not in tables:
        name = name[:-1]
    return name


def _line(
    path: Name,
    errors: list[ErrorDetails],
    sources: Sources,
    of_model: _Names,
) -> str:
    whole, source = sources.find(path)
    name = ".".join(whole)
    in_list = _before_a_number(path) != path
    if errors[0]["type"] == "extra_forbidden":
        why = _why_unknown(".".join(path), of_model.known, in_list=in_list)
        return f"{name} (from {source}): {why}"
    if errors[0]["type"] == "missing":
        if in_list:
            return f"{name} (from {source}): it is required, and missing"
        variable = sources.variable(path)
        return f"{name} is required: set it with a flag, in {variable} or in the file"
    allowed, given = _allowed(name, errors), errors[0]["input"]
    if isinstance(given, Mapping) and not errors[0]["type"].endswith("_type"):
        return f"{name}: {allowed}"  # its settings do not fit together
    shown = "" if _may_be_secret(path, of_model.hidden) else _shown(given)
    told = not shown or shown in allowed
    return f"{name} (from {source}): {allowed}{'' if told else f'; it is {shown}'}"


def _why_unknown(name: str, names_known: Collection[Name], *, in_list: bool) -> str:
    known = () if in_list else (".".join(x) for x in names_known)
    near = get_close_matches(name, known, n=1)
    return f"there is no such setting{f'; did you mean {near[0]}?' if near else ''}"


def _allowed(name: str, errors: list[ErrorDetails]) -> str:
    """Say in our words what the value should be."""
    match errors[0]["type"]:
        case "int_parsing_size":
            return "should be a smaller number"
        case "model_type":
            return f"should be a section with settings of its own, as in [{name}]"
        case "too_short" if errors[0]["ctx"]["field_type"] == "Value":  # a secret
            return f"should have at least {errors[0]['ctx']['min_length']} characters"
    texts = [re.sub("^(Value error, |String (?=should))", "", x["msg"]) for x in errors]
    if not texts[0].startswith("Input should "):
        return texts[0]
    wanted = [x.removeprefix("Input should ").partition(", unable")[0] for x in texts]
    first, *others = (_PLAIN.get(x, x) for x in wanted)
    return " or ".join([f"should {first}", *(x.removeprefix("be ") for x in others)])


def _may_be_secret(path: Name, hidden: Collection[Name]) -> bool:
    """Whether it is a secret, something in one, or a section that has one."""
    return any(x[: len(path)] == path[: len(x)] for x in hidden)


def _shown(given: object) -> str:
    """Show a value of a table or a list by its kind: there may be secrets in it."""
    if isinstance(given, date | time):
        return str(given)
    if not isinstance(given, str | int | float | None):
        return "a table" if isinstance(given, Mapping) else "a list"
    shown = "null" if given is None else repr(given)
    return f"{shown[:_MAX_SHOWN]}..." if len(shown) > _MAX_SHOWN else shown


def _sections_of(name: Name) -> Iterator[Name]:
    """Yield those that a setting is in, the innermost first: each may be set as a whole."""
    for length in range(len(name) - 1, 0, -1):
        yield name[:length]


def _has(flags: Mapping[str, Any], path: Name) -> bool:
    inner: Any = flags
    for name in path:
        if not isinstance(inner, Mapping) or name not in inner:
            return False
        inner = inner[name]
    return True
