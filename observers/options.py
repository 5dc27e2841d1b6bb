"""Whether options fit the constructor of an observer: their names, and their types."""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, get_origin

from pydantic import (
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)

from changefeed.runtime.errors import UserError

_EXACT = (bool, int, float)  # text that looks like one of these is none


def check_options(
    maker: Callable[..., object], name: str, options: Mapping[str, object]
) -> None:
    """Raise ``UserError`` for options that the constructor does not take. An annotation that
    cannot be resolved, or says nothing about values, allows all of them.
    """
    taken = inspect.signature(maker)
    try:
        bound = taken.bind(**options)
    except TypeError as error:
        given, known = (", ".join(x) or "none" for x in (options, taken.parameters))
        raise UserError(
            f"{name} cannot be made of these options: {error} (given: {given}; known: {known})"
        ) from error
    for key, annotation in _annotations(maker).items():
        if key in bound.arguments:
            _check_type(name, key, annotation, bound.arguments[key])


def _annotations(maker: Callable[..., object]) -> dict[str, Any]:
    """Return those that can be resolved: each by itself, as one says nothing about others."""
    names = names_of(maker)
    parameters = inspect.signature(maker).parameters.values()
    named = (x for x in parameters if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD))
    found = {x.name: resolved(x.annotation, names) for x in named}
    return {name: x for name, x in found.items() if x is not inspect.Parameter.empty}


def names_of(maker: Any) -> dict[str, Any]:
    """Return what names mean where a function, or the constructor of a class, was written."""
    while isinstance(maker, partial):
        maker = maker.func
    function = inspect.unwrap(maker.__init__ if inspect.isclass(maker) else maker)
    module = sys.modules.get(getattr(maker, "__module__", ""))
    fallback = {} if module is None else vars(module)
    names: dict[str, Any] = getattr(function, "__globals__", fallback)
    return names


def resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """Return what an annotation stands for, or ``Parameter.empty`` if that cannot be known."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)  # noqa: S307 - as the observer's module would
    except Exception:  # noqa: BLE001 - a name in it that only type checkers import
        return inspect.Parameter.empty


def _check_type(name: str, key: str, annotation: Any, value: object) -> None:
    try:
        TypeAdapter[object](annotation).validate_python(value, strict=annotation in _EXACT)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return  # a type of the user's own, or one in it that only type checkers import
    except ValidationError as error:
        wrong = error.errors()[0]["msg"].removeprefix("Input ").removeprefix("Value error, ")
        quoted = ", or write it in quotes" if annotation is str else ""
        kind = annotation.__origin__ if get_origin(annotation) is Annotated else annotation
        raise UserError(
            f"option {key}={value!r} ({inspect.formatannotation(kind)}) of {name}: "
            f"{wrong}{quoted}"
        ) from None
