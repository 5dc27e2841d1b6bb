"""Whether options fit the constructor of an observer: their names, and their types."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from changefeed.observers.errors import ObserverRefused

_EXACT = (bool, int, float)  # text that looks like one of these is none


def check_options(
    maker: Callable[..., object], name: str, options: Mapping[str, object]
) -> None:
    """Raise ``ObserverRefused`` for options that the constructor does not take.

    An annotation that cannot be resolved, or says nothing about values, allows all of them.
    """
    try:
        bound = inspect.signature(maker).bind(**options)
    except TypeError as error:
        given = ", ".join(options) or "none"
        raise ObserverRefused(
            f"{name} cannot be made of these options: {error} (given: {given})"
        ) from error
    for key, annotation in _annotations(maker).items():
        if key in bound.arguments:
            _check_type(name, key, annotation, bound.arguments[key])


def _annotations(maker: Callable[..., object]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(maker, eval_str=True).parameters.values()
    except Exception:  # noqa: BLE001 - a name in it that only type checkers import
        return {}
    named = (x for x in parameters if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD))
    return {x.name: x.annotation for x in named if x.annotation is not x.empty}


def _check_type(name: str, key: str, annotation: Any, value: object) -> None:
    try:
        adapter = TypeAdapter[object](annotation)
    except PydanticSchemaGenerationError:
        return  # a type of the user's own
    try:
        adapter.validate_python(value, strict=annotation in _EXACT)
    except ValidationError as error:
        wrong = error.errors()[0]["msg"].removeprefix("Input ")
        quoted = ", or write it in quotes" if annotation is str else ""
        raise ObserverRefused(
            f"{name} takes {key}: {inspect.formatannotation(annotation)}, and {key}={value!r} "
            f"{wrong}{quoted}"
        ) from None
