"""Aggregates, added up row by row: a group keeps no row but its first."""

from collections.abc import Callable
from typing import Any, Final

from cosmos_emulator.json_values import UNDEFINED
from cosmos_emulator.query.values import as_number, is_number, is_ordered, sort_key


class Tally:
    """What an aggregate has seen of a group so far: the values that are defined."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._takes, self._joined = _JOINED[function]
        self._count = 0
        self._so_far: Any = 0  # is that of SUM over nothing
        self._is_mixed = False

    def add(self, value: Any) -> None:
        if value is UNDEFINED or (self._function == "COUNTIF" and value is not True):
            return
        self._count += 1
        self._is_mixed = self._is_mixed or not self._takes(value)
        if not self._is_mixed:
            self._so_far = value if self._count == 1 else self._joined(self._so_far, value)

    def result(self) -> Any:
        """Return what the aggregate says; undefined where a value was of a wrong type."""
        if self._function in {"COUNT", "COUNTIF"}:
            return self._count
        if self._is_mixed or (not self._count and self._function != "SUM"):
            return UNDEFINED
        return self._so_far / self._count if self._function == "AVG" else self._so_far


def _sum(so_far: Any, value: Any) -> Any:
    return as_number(so_far + value)


_JOINED: Final[dict[str, tuple[Callable[[Any], bool], Callable[[Any, Any], Any]]]] = {
    "COUNT": (lambda _: True, lambda so_far, _: so_far),
    "COUNTIF": (lambda _: True, lambda so_far, _: so_far),
    "SUM": (is_number, _sum),
    "AVG": (is_number, _sum),
    "MIN": (is_ordered, lambda so_far, value: min(so_far, value, key=sort_key)),
    "MAX": (is_ordered, lambda so_far, value: max(so_far, value, key=sort_key)),
}
"""Which values each takes, and what it makes of two of them."""
