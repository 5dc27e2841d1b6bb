"""Comparison, order and sameness of values of JSON and undefined.

As in Cosmos DB, values of different types cannot be compared: the result is undefined,
and an item is in the result only if its condition is true.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from cosmos_emulator.json_values import UNDEFINED


def type_rank(value: Any) -> int:  # noqa: PLR0911 - one for each type
    """Return the place of a value's type in the order of ORDER BY."""
    match value:
        case _ if value is UNDEFINED:
            return 0
        case None:
            return 1
        case bool():
            return 2
        case int() | float():
            return 3
        case str():
            return 4
        case list():
            return 5
        case _:
            return 6


_MAX_EXACT: Final = 2**63
_ORDERED: Final = frozenset({type_rank(x) for x in (None, False, 0, "")})


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_number(value: float) -> float:
    """Return a number as an account keeps it: beyond 64 bits it is not exact."""
    return value if -_MAX_EXACT <= value < _MAX_EXACT else float(value)


def is_ordered(value: Any) -> bool:
    """Return whether a value is one of those that MIN and MAX compare."""
    return type_rank(value) in _ORDERED


def sort_key(value: Any) -> tuple[int, Any]:
    """Return what sorts values as ORDER BY does; arrays and objects all rank alike."""
    rank = type_rank(value)
    return rank, value if rank in _ORDERED and value is not None else 0


def compared(operator: str, left: Any, right: Any) -> Any:
    """Return true or false, or undefined where the two cannot be compared."""
    rank = type_rank(left)
    if rank != type_rank(right) or rank == 0:
        return UNDEFINED
    if operator == "=":
        return same(left, right)
    if operator == "!=":
        return not same(left, right)
    if rank not in _ORDERED:
        return UNDEFINED
    if left is None:
        return operator in {"<=", ">="}
    return _ORDERS[operator](left, right)


_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def same(left: Any, right: Any) -> bool:
    """Compare deeply, without taking true for 1."""
    if type_rank(left) != type_rank(right):
        return False
    if isinstance(left, list):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(same(a, b) for a, b in pairs)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return bool(left == right)


def identity(value: Any) -> bytes:
    """Return a text that the same values share: DISTINCT and GROUP BY go by it."""
    return b"" if value is UNDEFINED else msgspec.json.encode(canonical(value), order="sorted")


def canonical(value: Any) -> Any:
    """Spell each number in one way, a whole one without a fraction: clients compare texts."""
    if isinstance(value, dict):
        return {k: canonical(v) for k, v in value.items()}
    if isinstance(value, list):
        return [canonical(x) for x in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
