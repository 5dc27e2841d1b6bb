"""All settings in order, with their defaults and descriptions.

For the texts about settings: the files that ``config`` writes, the page of
settings, and the messages about wrong ones. Descriptions are the docstrings below settings, and
are read when they are asked for: pydantic would look for them when a module is imported, in the
files of all modules that are loaded by then, before each start of a host.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeGuard, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

IN_FILE = "_file"
"""Behind the name of a secret: the file that holds it, as Kubernetes and Docker mount them."""

Path = tuple[str, ...]
"""The name of a setting, as ``("leases", "expiration")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting. ``default`` is ``None`` where there is none to write down."""

    section: type
    """The class that has it."""
    name: str
    default: Any
    choices: tuple[str, ...] = ()
    has_names: bool = False
    """Whether its value is a table, with names that are the user's."""
    is_list: bool = False
    is_secret: bool = False
    required: bool = False
    example: Any = None
    """A value that shows the form, where the default does not."""
    items: tuple["Entry", ...] = ()
    """The settings of each of its values, where it is a list of sections."""

    @property
    def text(self) -> str:
        """What it means; where it is a list of sections and says nothing, what these are."""
        own = _docstrings(self.section).get(self.name, "")
        of_items = self.items[0].section.__doc__ if self.items else None
        return own or inspect.cleandoc(of_items or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionDoc:
    """The settings that share all but the last part of their name."""

    path: Path
    text: str
    entries: tuple[Entry, ...]
    is_open: bool = False
    """Whether it takes sections that others check, whatever they are called."""


@cache
def sections(model: type, path: Path = ()) -> Sequence[SectionDoc]:
    """Return the sections in the order they are written in, outer ones first.

    Settings in no section come first, under an empty name.
    """
    entries, inner, found = [], list[tuple[str, type]](), list[SectionDoc]()
    for name, info in _fields(model).items():
        if _is_section(info.annotation):
            inner.append((name, info.annotation))
        else:
            entries.append(_entry(model, name, info))
    if path or entries:
        text = inspect.cleandoc(model.__doc__ or "")
        is_open = issubclass(model, BaseModel) and model.model_config.get("extra") == "allow"
        found.append(SectionDoc(path=path, text=text, entries=tuple(entries), is_open=is_open))
    for name, annotation in inner:
        found += sections(annotation, (*path, name))
    return found


def names(model: type) -> list[Path]:
    """Return the names of all sections and settings, and of the files of secrets."""
    return [
        path
        for section in sections(model)
        for path in (
            section.path,
            *((*section.path, x.name) for x in section.entries),
            *((*section.path, f"{x.name}{IN_FILE}") for x in section.entries if x.is_secret),
        )
        if path
    ]


def entries(model: type) -> dict[Path, Entry]:
    """Return all settings by their whole names."""
    return {(*section.path, x.name): x for section in sections(model) for x in section.entries}


def secrets(model: type) -> list[Path]:
    """Return the names of settings that hold a secret, and of sections that may."""
    found = [name for name, x in entries(model).items() if x.is_secret]
    return [*found, *open_sections(model)]


def open_sections(model: type) -> list[Path]:
    """Return the names of sections that hold those of others."""
    return [x.path for x in sections(model) if x.is_open]


def _fields(model: Any) -> dict[str, FieldInfo]:
    own = inspect.get_annotations(model)  # before what it inherits
    return dict(sorted(model.model_fields.items(), key=lambda x: x[0] not in own))


def is_secret(annotation: object) -> bool:
    return SecretStr in (annotation, *get_args(annotation))


def _is_section(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


@cache
def _docstrings(model: type) -> Mapping[str, str]:
    """Return the docstrings of settings by their names, those that a section inherits too."""
    found = dict[str, str]()
    for section in reversed(model.__mro__):
        if section is BaseModel or not issubclass(section, BaseModel):
            continue
        try:
            source = inspect.getsource(section)
        except (OSError, TypeError):  # it was installed without
            continue
        (tree,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(tree, ast.ClassDef), "sections are classes"
        for setting, text in pairwise(tree.body):
            match setting, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(doc))),
                ):
                    found[name] = inspect.cleandoc(doc)
    return found


def _entry(section: type, name: str, info: FieldInfo) -> Entry:
    default = {} if info.default_factory is dict else info.get_default()
    kind = get_origin(info.annotation) or info.annotation
    item = get_args(info.annotation)[0] if kind is tuple else None
    return Entry(
        section=section,
        name=name,
        # A default that is made (the name of the machine) differs from place to place.
        default=None if default is PydanticUndefined else default,
        choices=get_args(info.annotation) if kind is Literal else (),
        has_names=isinstance(kind, type) and issubclass(kind, Mapping),
        is_list=kind in (list, tuple),
        is_secret=is_secret(info.annotation),
        required=info.is_required(),
        example=info.examples[0] if info.examples else None,
        items=tuple(_entry(item, *x) for x in _fields(item).items())
        if _is_section(item)
        else (),
    )
