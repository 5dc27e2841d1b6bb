"""What shapes users' observers may have, found out before any of their code is called.

Everything here raises ``UserError`` with advice, for what cannot be called.
"""

import inspect
from functools import partialmethod
from types import FunctionType
from typing import Any

from changefeed.runtime.errors import UserError


def as_called(cls: type, method: str) -> Any:
    """Return the method as an object of ``cls`` would show it, without making an object."""
    raw = inspect.getattr_static(cls, method)
    if isinstance(raw, FunctionType | staticmethod | classmethod | partialmethod):
        return raw.__get__(object(), cls)
    return raw


def signature_of(function: Any, name: str) -> inspect.Signature:
    if not callable(function):
        raise UserError(f"{name} is not a method, but {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UserError(
            f"{name} is a generator: calling it runs nothing. Handle the changes and return, "
            f"without 'yield'"
        )
    try:
        return inspect.signature(function)
    except ValueError as error:
        raise UserError(f"{name} does not say its parameters; wrap it in a 'def'") from error


def takes_context(function: Any, name: str) -> bool:
    """Whether it is ``(context, changes)`` rather than ``(changes)``; refuse all else."""
    parameters = signature_of(function, name).parameters.values()
    needed = [x for x in parameters if x.default is x.empty]
    by_place = [x for x in needed if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    by_name = [x for x in needed if x.kind is x.KEYWORD_ONLY]
    any_number = any(x.kind is x.VAR_POSITIONAL for x in parameters)
    if by_name or len(by_place) > 2 or not (by_place or any_number):  # noqa: PLR2004 - as it says
        raise UserError(
            f"{name} must take (context, changes) or (changes); "
            f"it takes {signature_of(function, name)}"
        )
    return len(by_place) != 1


def check_binds(function: Any, name: str, wanted: str) -> None:
    signature = signature_of(function, name)
    try:
        signature.bind(*wanted.split(","))
    except TypeError as error:
        raise UserError(f"{name} must take {wanted}; it takes {signature}") from error
