"""The site's page of the API, made of the docstrings of what is promised."""

import dataclasses
import enum
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec
import pydantic

import changefeed
import changefeed.backends
import changefeed.testing

_HEAD = """\
# API

All that `from changefeed import …`, `from changefeed.backends import …` and
`from changefeed.testing import …` have, and that you may rely on. What is under other names may
change with any version. This page is made from the docstrings. How to use it:
[Observers](observers.md), [Embedding](embedding.md),
[Backends](backends.md), [Testing](testing.md),
[Settings](settings.md).
"""


def page() -> str:
    parts = [
        _HEAD,
        *_module(changefeed),
        *_module(changefeed.backends),
        *_module(changefeed.testing),
    ]
    return "\n".join(x for x in parts if x)


def _module(module: ModuleType) -> Iterator[str]:
    groups: Mapping[str, Collection[str]] = module._GROUPS
    for title, names in groups.items():
        place = "" if module is changefeed else f" (`{module.__name__}`)"
        yield f"## {title}{place}\n"
        for name in names:
            yield from _entry(name, getattr(module, name))


def _entry(name: str, found: Any) -> Iterator[str]:
    if inspect.isclass(found):
        yield f"### `{name}`\n"
        yield _text(found.__dict__.get("__doc__") or "", of=found)
        yield from _members(found)
    elif inspect.isfunction(found):
        yield f"### `{name}`\n"
        yield _code(f"{_prefix(found)}{name}{_signature(found)}")
        yield _text(found.__doc__ or "")
    else:
        yield f"### `{name}`\n"
        yield _code(f"{name} = {_plain(_shown(found))}")


def _members(cls: type) -> Iterator[str]:
    fields = list(_fields(cls))
    if fields:
        yield "".join(f"* `{x}`\n" for x in fields)
    bases = [x for x in cls.__mro__ if x is cls or x.__name__.startswith("_")]
    members = {name: member for x in reversed(bases) for name, member in vars(x).items()}
    for name, member in members.items():
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(function, property):
            yield f"`{cls.__name__}.{name}`: `{_returns(function.fget)}`\n"
            yield _text(inspect.getdoc(function) or "", quote=True)
        elif inspect.isfunction(function):
            yield _code(f"{_prefix(function)}{name}{_signature(function, method=True)}")
            yield _text(inspect.getdoc(function) or "", quote=True)


def _fields(cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield from (f"{x.name}: {x.value}" for x in cls)
    elif issubclass(cls, pydantic.BaseModel):
        yield from (f"{x}: {_plain(_shown(y.annotation))}" for x, y in cls.model_fields.items())
    elif dataclasses.is_dataclass(cls):
        yield from (f"{x.name}: {_plain(x.type)}" for x in dataclasses.fields(cls))
    elif issubclass(cls, msgspec.Struct):
        hints = cls.__annotations__
        yield from (f"{x}: {_plain(_shown(hints[x]))}" for x in cls.__struct_fields__)
    else:
        hints = vars(cls).get("__annotations__", {})
        yield from (f"{x}: {_plain(_shown(y))}" for x, y in hints.items() if x[0] != "_")


def _prefix(function: Any) -> str:
    inner = inspect.unwrap(function)
    if inspect.isasyncgenfunction(inner) and inner is not function:
        return "async with "
    if inspect.isgeneratorfunction(inner) and inner is not function:
        return "with "
    return "await " if inspect.iscoroutinefunction(function) else ""


def _signature(function: Any, *, method: bool = False) -> str:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if method and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    return _plain(str(signature.replace(parameters=parameters)))


def _returns(function: Any) -> str:
    return _plain(_shown(inspect.signature(function).return_annotation))


def _shown(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__qualname__
    return str(annotation)


def _plain(text: Any) -> str:
    """Leave modules out of names of types, and what pydantic keeps beside them."""
    text = re.sub(
        r"<(?:built-in )?function (?:\w+\.)*(\w+)(?: at 0x\w+)?>", r"\1", _shown(text)
    )
    short = re.sub(r"Annotated\[(\w+), .*?\)\]", r"\1", text)
    short = re.sub(r"Optional\[typing\.(\w+)\]", r"\1 | None", short)
    short = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", short)
    return re.sub(r"<class '([\w.]+)'>", r"\1", short).replace("'", "")


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _text(doc: str, *, of: type | None = None, quote: bool = False) -> str:
    if of is not None and doc.startswith(f"{of.__name__}("):
        return ""  # what dataclasses write themselves
    cleaned = inspect.cleandoc(doc).replace("``", "`").replace("::\n", ":\n")
    if not cleaned:
        return ""
    lines = cleaned.split("\n")
    return "\n".join(f"> {x}".rstrip() if quote else x for x in lines) + "\n"
