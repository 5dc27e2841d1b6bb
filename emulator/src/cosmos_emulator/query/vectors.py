"""Distances of vectors, exact: every vector is compared, no index is used."""

from collections.abc import Callable
from typing import Any, Final

from cosmos_emulator.errors import bad_request
from cosmos_emulator.json_values import UNDEFINED
from cosmos_emulator.query.given import (
    DEFAULT_DISTANCE,
    Given,
    Path,
    QueryFunction,
    package_of_extra,
)

DISTANCES: Final = ("cosine", "dotproduct", "euclidean")
MAX_DIMENSIONS: Final = 4096


class _Vectors:
    """Makes vectors of lists, and remembers the last: a query compares all items to one."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._list: Any = None
        self._vector: Any = None

    def vector(self, value: Any) -> Any:
        """Return a vector; none if the value is not a list of some numbers."""
        if not isinstance(value, list) or not 0 < len(value) <= MAX_DIMENSIONS:
            return None
        if value is not self._list:
            self._list, self._vector = value, self._made(value)
        return self._vector

    def _made(self, value: list[Any]) -> Any:
        try:
            vector = self._numpy.array(value)
        except ValueError:  # lists of several lengths
            return None
        numbers = vector.ndim == 1 and vector.dtype.kind in "fiu"
        return vector.astype(self._numpy.float64) if numbers else None


def _measured(sign_of: Callable[[str], float]) -> QueryFunction:
    def bound(given: Given, path: Path) -> Callable[..., Any]:
        numpy = package_of_extra("numpy", "VectorDistance")
        usual = given.policies.distances.get(path, DEFAULT_DISTANCE)
        left, right = _Vectors(numpy), _Vectors(numpy)

        def measure(one: Any, other: Any, _brute_force: Any = None, options: Any = None) -> Any:
            kind = _kind(options, usual)
            a, b = left.vector(one), right.vector(other)
            if a is None or b is None or len(a) != len(b):
                return UNDEFINED
            return sign_of(kind) * _distance(numpy, kind, a, b)

        return measure

    return QueryFunction(arity=(2, 4), bound=bound)


def _kind(options: Any, usual: str) -> str:
    wanted = options.get("distanceFunction", usual) if isinstance(options, dict) else usual
    kind = str(wanted).lower()
    if kind not in DISTANCES:
        raise bad_request(
            f"VectorDistance knows no distanceFunction {str(wanted)[:40]!r}: it has "
            f"{', '.join(DISTANCES)}."
        )
    return kind


def _distance(numpy: Any, kind: str, a: Any, b: Any) -> float:
    if kind == "euclidean":
        return float(numpy.linalg.norm(a - b))
    product = float(a @ b)
    if kind == "dotproduct":
        return product
    lengths = float(numpy.linalg.norm(a) * numpy.linalg.norm(b))
    return product / lengths if lengths else 0.0


VECTOR_DISTANCE: Final = _measured(lambda _: 1.0)
VECTOR_SCORE: Final = _measured(lambda kind: -1.0 if kind == "euclidean" else 1.0)
"""The distance as a score: a higher one is nearer, whatever the distance is."""
