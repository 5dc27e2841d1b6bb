"""Filters of Spark as conditions of a query: less is read, and no row is lost.

A condition holds for every item whose row Spark would keep, and perhaps for others: Spark
applies each filter again. Spark sees a column, Cosmos DB sees JSON. So each comparison says
of which JSON type the value must be, and what a column makes of other types is let through.

==============================  ================================================
STRING                          ``=``, ``IN``, ``LIKE``; ``<`` by the bytes of UTF-8. Other
                                JSON is text in the column: it passes where it may fit
BOOLEAN, whole numbers, DOUBLE  ``=``, ``IN``, ``<``, for numbers below 2⁵³, which JSON and
                                Cosmos DB have exactly
``committed_at``                to the second
all others                      whether they are null: they have many spellings
==============================  ================================================

A literal that has no exact counterpart (NaN, a number from 2⁵³ on) is left to Spark, as is all
that Spark does not push: OR, functions, casts.

Limits: text is compared by its code points here and in the emulator. Where a literal has none
from U+D800 on, an order by UTF-16 is the same; an order by the rules of a language would not
be, and no account has shown one. Spark 4.1 to 4.3 reuses a plan with filters for other scans
of one DataFrame, as ``source.filters`` says: ``pushFilters`` is off by default.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changefeed.feeds.cosmos.items import Query
from changefeed.pipeline.items.columns import COMMITTED_AT, ID, ItemColumns

_ITEM: Final = "c"
_EXACT: Final = 1 << 53
_MOST_VALUES: Final = 1_000
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_OPERATORS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_OPPOSITE: Final = {"=": "!=", ">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_FUNCTIONS: Final[dict[type[Filter], str]] = {
    StringStartsWith: "STARTSWITH",
    StringEndsWith: "ENDSWITH",
    StringContains: "CONTAINS",
}
_OTHERS: Final = {
    "IS_NUMBER": "-0123456789",
    "IS_BOOL": "tf",
    "IS_OBJECT": "{",
    "IS_ARRAY": "[",
}
"""JSON that is text in a column of strings, and how that text begins."""
_CHECKS: Final[dict[type[DataType], str]] = {
    BooleanType: "IS_BOOL",
    StringType: "IS_STRING",
    DateType: "IS_STRING",
    TimestampType: "IS_STRING",
    TimestampNTZType: "IS_STRING",
    ArrayType: "IS_ARRAY",
    StructType: "IS_OBJECT",
    MapType: "IS_OBJECT",
}
_EXACT_CHECKS: Final = (BooleanType, DoubleType, ArrayType, StructType, MapType)
"""Types that take each value of their JSON type, so that nothing else is null."""


class Conditions:
    """What the items have to meet, as SQL, and the parameters of it. Pickles."""

    def __init__(self, columns: ItemColumns) -> None:
        self._columns = columns
        self._found: list[str] = []
        self._parameters: dict[str, Any] = {}

    @property
    def query(self) -> Query:
        text = " AND ".join(f"({x})" for x in self._found)
        return Query(text=text, parameters=self._parameters)

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take over what can be. Yield all filters: Spark applies each again."""
        for x in filters:
            negated = isinstance(x, Not)
            condition = self._met(x.child if isinstance(x, Not) else x, negated=negated)
            if condition is not None:
                self._found.append(condition)
            yield x

    def _met(self, x: Filter, *, negated: bool) -> str | None:
        """Return what holds wherever a filter does, or where it is false, which it is not of
        null; ``None`` for nothing that is known.
        """
        match x:
            case IsNull(path):
                return self._there(path) if negated else self._null(path)
            case IsNotNull(path):
                return self._null(path) if negated else self._there(path)
            case In(path, values):  # it is never false where one of them is null
                known = values if negated else [y for y in values if y is not None]
                return self._among(path, known, negated=negated)
            case (
                StringStartsWith(path, text)
                | StringEndsWith(path, text)
                | StringContains(path, text)
            ):
                return self._like(path, _FUNCTIONS[type(x)], text, negated=negated)
            case _ if type(x) in _OPERATORS and not (negated and isinstance(x, EqualNullSafe)):
                said = _OPERATORS[type(x)]
                operator = _OPPOSITE[said] if negated else said
                return self._compared(x.attribute, operator, x.value)  # type: ignore[attr-defined]
        return None

    def _compared(self, path: Sequence[str], operator: str, value: Any) -> str | None:
        if path == (COMMITTED_AT,) and COMMITTED_AT in self._columns.of_format:
            return self._committed(operator, value)
        kind = self._type(path)
        if not _is_exact(kind, value) or (
            isinstance(kind, BooleanType) and operator not in ("=", "!=")
        ):
            return None
        at = _property(path)
        if isinstance(kind, StringType):
            if operator not in ("=", "!=") and max(value, default="") >= "\ud800":
                return None
            shown = self._others(at, _same(value) if operator == "=" else _any)
            return f"IS_STRING({at}) AND {at} {operator} {self._parameter(value)}{shown}"
        return f"{_check(kind)}({at}) AND {at} {operator} {self._parameter(value)}"

    def _among(
        self, path: Sequence[str], values: Sequence[Any], *, negated: bool
    ) -> str | None:
        kind = self._type(path)
        if not 0 < len(values) <= _MOST_VALUES or not all(_is_exact(kind, x) for x in values):
            return None
        at, listed = _property(path), ", ".join(map(self._parameter, values))
        found = f"{'NOT ' if negated else ''}({at} IN ({listed}))"
        if not isinstance(kind, StringType):
            return f"{_check(kind)}({at}) AND {found}"
        fits = _any if negated else lambda x: any(_same(y)(x) for y in values)
        return f"IS_STRING({at}) AND {found}{self._others(at, fits)}"

    def _like(
        self, path: Sequence[str], function: str, value: Any, *, negated: bool
    ) -> str | None:
        kind = self._type(path)
        if not isinstance(kind, StringType) or not _is_exact(kind, value) or not value:
            return None
        at = _property(path)
        found = f"{function}({at}, {self._parameter(value)})"
        begins = function == "STARTSWITH" and not negated
        shown = self._others(at, _same(value) if begins else _any)
        return f"IS_STRING({at}) AND {'NOT ' if negated else ''}{found}{shown}"

    def _null(self, path: Sequence[str]) -> str | None:
        kind, at = self._type(path), _property(path)
        if isinstance(kind, StringType):
            return f"NOT IS_DEFINED({at}) OR IS_NULL({at})"
        return f"NOT {_check(kind)}({at})" if isinstance(kind, _EXACT_CHECKS) else None

    def _there(self, path: Sequence[str]) -> str | None:
        kind, at = self._type(path), _property(path)
        if kind is None:
            return None
        if isinstance(kind, StringType):
            return f"IS_DEFINED({at}) AND NOT IS_NULL({at})"
        return f"{_check(kind)}({at})"

    def _committed(self, operator: str, value: Any) -> str | None:
        """Compare ``_ts``, in whole seconds, with the second of a time: it may be equal."""
        if not isinstance(value, datetime) or value.tzinfo is None or operator == "!=":
            return None
        second = math.floor(value.astimezone(UTC).timestamp())
        at = _property(("_ts",))
        widened = {">": ">=", "<": "<="}.get(operator, operator)
        return f"IS_NUMBER({at}) AND {at} {widened} {self._parameter(second)}"

    def _type(self, path: Sequence[str]) -> DataType | None:
        if path == (ID,) and ID in self._columns.of_format:
            return StringType()
        return self._columns.type_at(path)

    def _others(self, at: str, fits: Callable[[str], bool]) -> str:
        """Return what lets JSON through that is not a string, where its text may fit."""
        return "".join(f" OR {x}({at})" for x, begins in _OTHERS.items() if fits(begins))

    def _parameter(self, value: Any) -> str:
        name = f"@p{len(self._parameters)}"
        self._parameters[name] = value
        return name


def _is_exact(kind: DataType | None, value: Any) -> bool:
    """Whether a column of a type, JSON, and Cosmos DB mean the same by a literal."""
    if isinstance(kind, StringType):
        return isinstance(value, str)
    if isinstance(kind, BooleanType):
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(kind, _WHOLE):
        return isinstance(value, int) and abs(value) < _EXACT
    return isinstance(kind, DoubleType) and abs(value) < _EXACT


def _check(kind: DataType | None) -> str:
    """Return the function that says whether some JSON may be a value of a type."""
    assert kind is not None, "the filter is of a column"
    return "IS_NUMBER" if isinstance(kind, NumericType) else _CHECKS[type(kind)]


def _any(_: str) -> bool:
    return True


def _same(value: str) -> Callable[[str], bool]:
    """Return what says of first letters whether a text that has one may begin with a value."""
    return lambda letters: value != "" and value[:1] in letters


def _property(path: Sequence[str]) -> str:
    return _ITEM + "".join(f"[{msgspec.json.encode(x).decode()}]" for x in path)
