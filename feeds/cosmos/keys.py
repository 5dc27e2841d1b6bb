"""Partition keys as text, equal where Cosmos DB has them equal and nowhere else."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

_LARGEST: Final = 2**1024  # no 64-bit float has it
_EXACT: Final = 2**53  # up to here a 64-bit float has every whole number
_STEP: Final = re.compile(r"""/(?:(["'])(.*?)\1(?=/|$)|([^/]+))""")


def steps_of(path: str) -> tuple[str, ...]:
    """Split ``/a/"b/c"``, as a container says where a partition key lies, into names."""
    return tuple(x[2] if x[1] else x[3] for x in _STEP.finditer(path))


def walked(value: Any, path: Sequence[str]) -> Any:
    for step in path:
        if not isinstance(value, dict):
            return msgspec.UNSET
        value = value.get(step, msgspec.UNSET)
    return value


def key_text(values: Sequence[Any]) -> str:
    """Write a partition key as text, so that keys are equal where Cosmos DB has them equal.

    A string is written as it is. Anything else is JSON behind a ``=``, so that no string is
    taken for it; a string that begins with ``=`` gets one more. A key of several levels is a
    JSON array. A key that the item does not have is ``{}``, as Cosmos DB writes it.
    """
    if len(values) > 1:
        return msgspec.json.encode([_plain(x) for x in values]).decode()
    (value,) = values
    if isinstance(value, str):
        return f"={value}" if is_marked(value) else value
    return f"={msgspec.json.encode(_plain(value)).decode()}"


def key_values(text: str, levels: int) -> list[Any]:
    """Read what ``key_text`` has written of a key of so many levels: ``{}`` for what the item
    does not have. Raise ``ValueError`` for another text.
    """
    try:
        if levels > 1:
            return checked_key(msgspec.json.decode(text, type=list[Any]), levels)
        if is_marked(text) and not is_marked(text[1:]):
            return checked_key([msgspec.json.decode(text[1:])], levels)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    return [text[1:] if is_marked(text) else text]


def checked_key(values: Sequence[Any], levels: int) -> list[Any]:
    """Return a partition key. Raise ``ValueError`` for what is none of so many levels."""
    if len(values) != levels:
        raise ValueError(f"it has {levels} levels")
    for x in values:
        large = isinstance(x, int) and abs(x) >= _LARGEST
        if large or isinstance(x, list) or (isinstance(x, dict) and x):
            raise ValueError(
                f"{x!r} is no partition key: it is text, a number, true, false, null, or {{}} "
                f"where the item has none"
            )
    return [*values]


def is_marked(text: str) -> bool:
    return text.startswith("=")


def _plain(value: Any) -> Any:
    """Return the one spelling of a value: Cosmos DB's numbers are 64-bit floats."""
    if value is msgspec.UNSET:
        return {}
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # no account has such a key; a proxy may
            return str(value)
        return int(number) if abs(number) <= _EXACT and number.is_integer() else number
    return value
