"""Changes with values of the type that an observer is annotated with: ``Change[Order]``.

A type of pydantic is validated by pydantic, any other by msgspec: its structs, dataclasses,
``TypedDict`` and what Python has. Where deletes come without an image, the type has to allow
``None``. A change that does not fit fails, and so fails its batch before any code of the user
has seen it: the batch is taken apart, as after any failure, until the change is alone.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from changefeed.feeds.feed import Change
from changefeed.observers.options import names_of, resolved
from changefeed.runtime.errors import UserError

Decode = Callable[[Sequence[Change]], Sequence[Change]]
_NO_IMAGE = b"null"


def decoder_of(function: Any, name: str) -> Decode | None:
    """Return what gives changes the type that a parameter of ``function`` is annotated with;
    ``None`` if that is any.

    Raise ``UserError`` for a type whose name cannot be found, or that nothing can be made
    of.
    """
    for parameter in inspect.signature(function).parameters.values():
        wanted = _value_type(parameter.annotation, function, name)
        if wanted is not Any:
            return _decoder(wanted, name)
    return None


def _value_type(annotation: Any, function: Any, name: str) -> Any:
    """Return ``X`` of ``Sequence[Change[X]]``, and ``Any`` of all else."""
    found = resolved(annotation, names_of(function))
    if found is inspect.Parameter.empty and "Change[" in str(annotation):
        raise UserError(
            f"{name} takes {annotation}, and a name in it cannot be found: import it in the "
            f"module itself, not only where types are checked"
        )
    for inner in (found, *get_args(found)):
        if get_origin(inner) is Change:
            (wanted,) = get_args(inner)
            return Any if isinstance(wanted, TypeVar) else wanted
    return Any


class _Typed(Change[Any], frozen=True, kw_only=True, gc=False):
    decoded: Any

    def value(self) -> Any:
        return self.decoded


def _decoder(wanted: Any, name: str) -> Decode:
    try:
        of_pydantic = _is_of_pydantic(wanted)
        parse = _of_pydantic(wanted) if of_pydantic else msgspec.json.Decoder(wanted).decode
    except (TypeError, NameError, PydanticUserError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{name} takes changes of {wanted!r}: {why}") from error

    def decode(changes: Sequence[Change]) -> Sequence[Change]:
        return [_typed(x, parse) for x in changes]

    return decode


def _typed(change: Change, parse: Callable[[bytes], Any]) -> Change:
    try:
        decoded = parse(change.body or _NO_IMAGE)
    except ValueError as error:
        why = _reasons(error) if isinstance(error, ValidationError) else error
        raise ValueError(
            f"the {change.operation} of item {change.id!r}, at sequence {change.sequence} of "
            f"range {change.range_id!r}, does not fit the type of the observer: {why}"
        ) from None
    return _Typed(
        range_id=change.range_id,
        sequence=change.sequence,
        key=change.key,
        id=change.id,
        operation=change.operation,
        body=change.body,
        committed_us=change.committed_us,
        previous=change.previous,
        decoded=decoded,
    )


def _of_pydantic(wanted: Any) -> Callable[[bytes], Any]:
    adapter = TypeAdapter[Any](wanted)
    adapter.rebuild()  # a name that was not known when the model was made is looked for now
    return adapter.validate_json


def _is_of_pydantic(wanted: Any) -> bool:
    """Whether it is a type of pydantic, or a union or a container of one."""
    of_its_own = hasattr(wanted, "__pydantic_validator__")
    return of_its_own or any(map(_is_of_pydantic, get_args(wanted)))


def _reasons(error: ValidationError) -> str:
    """Say what does not fit, without what was there: it may be nobody's business."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, x['loc'])) or 'it'}: {x['msg']}" for x in found)
