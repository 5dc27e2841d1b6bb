"""Partition keys as text, equal where Cosmos DB has them equal and nowhere else."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

_EXACT: Final = 2**53  # up to here a 64-bit float has every whole number


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
    if levels > 1:
        values = msgspec.json.decode(text)
        if not isinstance(values, list) or len(values) != levels:
            raise ValueError(f"it has {levels} levels")
        return values
    if not is_marked(text):
        return [text]
    return [text[1:] if is_marked(text[1:]) else msgspec.json.decode(text[1:])]


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


def unquoted(step: str) -> str:
    return step[1:-1] if step[:1] in ("'", '"') else step
