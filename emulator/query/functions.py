"""Comparison, order and the functions of queries, over values of JSON and undefined.

As in Cosmos DB, values of different types cannot be compared: the result is undefined,
and an item is in the result only if its condition is true.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from changefeed.emulator.json_values import UNDEFINED


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


_ORDERED: Final = frozenset({type_rank(x) for x in (None, False, 0, "")})


def sort_key(value: Any) -> tuple[int, Any]:
    """Return what sorts values as ORDER BY does; arrays and objects are not told apart."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function, and the fewest and most arguments it takes."""

    arity: tuple[int, int]
    call: Callable[..., Any]


def _on_strings(test: Callable[[str, str], Any]) -> Function:
    def call(text: Any, part: Any, ignore_case: Any = False) -> Any:  # noqa: FBT002 - as in SQL
        if not isinstance(text, str) or not isinstance(part, str):
            return UNDEFINED
        if ignore_case is True:
            return test(text.lower(), part.lower())
        return test(text, part)

    return Function(arity=(2, 3), call=call)


def _on_string(change: Callable[[str], Any]) -> Function:
    def call(text: Any) -> Any:
        return change(text) if isinstance(text, str) else UNDEFINED

    return Function(arity=(1, 1), call=call)


def _is(rank: int) -> Function:
    return Function(arity=(1, 1), call=lambda value: type_rank(value) == rank)


def _array_contains(array: Any, wanted: Any, partly: Any = False) -> Any:  # noqa: FBT002
    if not isinstance(array, list) or wanted is UNDEFINED:
        return UNDEFINED
    if partly is True and isinstance(wanted, dict):
        return any(isinstance(x, dict) and _holds(x, wanted) for x in array)
    return any(same(x, wanted) for x in array)


def _holds(value: dict[str, Any], part: dict[str, Any]) -> bool:
    return all(k in value and same(value[k], v) for k, v in part.items())


def _array_length(array: Any) -> Any:
    return len(array) if isinstance(array, list) else UNDEFINED


FUNCTIONS: Final[dict[str, Function]] = {
    "STARTSWITH": _on_strings(str.startswith),
    "ENDSWITH": _on_strings(str.endswith),
    "CONTAINS": _on_strings(lambda text, part: part in text),
    "STRINGEQUALS": _on_strings(lambda text, other: text == other),
    "LOWER": _on_string(str.lower),
    "UPPER": _on_string(str.upper),
    "LENGTH": _on_string(len),
    "IS_DEFINED": Function(arity=(1, 1), call=lambda value: value is not UNDEFINED),
    "IS_NULL": _is(1),
    "IS_BOOL": _is(2),
    "IS_NUMBER": _is(3),
    "IS_STRING": _is(4),
    "IS_ARRAY": _is(5),
    "IS_OBJECT": _is(6),
    "ARRAY_CONTAINS": Function(arity=(2, 3), call=_array_contains),
    "ARRAY_LENGTH": Function(arity=(1, 1), call=_array_length),
}
