"""The functions of queries. What does not fit their arguments makes them undefined."""

import base64
import math
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from cosmos_emulator.json_values import UNDEFINED
from cosmos_emulator.query import arithmetic, dates, fulltext, vectors
from cosmos_emulator.query.budget import check_size
from cosmos_emulator.query.given import Function, Given, Path, QueryFunction
from cosmos_emulator.query.matching import is_match
from cosmos_emulator.query.values import identity, is_number, same, type_rank

_MAX_REPLICATED: Final = 10_000  # characters


def _typed(call: Callable[..., Any], *kinds: str, fewest: int | None = None) -> Function:
    """Return a function that is undefined unless its arguments are of these kinds."""
    checks = [_KINDS[x] for x in kinds]

    def checked(*given: Any) -> Any:
        if not all(check(x) for check, x in zip(checks, given, strict=False)):
            return UNDEFINED
        try:
            return call(*given)
        except (ValueError, OverflowError, ZeroDivisionError, KeyError):
            return UNDEFINED

    return Function(arity=(len(kinds) if fewest is None else fewest, len(kinds)), call=checked)


_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda x: isinstance(x, str),
    "number": is_number,
    "whole": lambda x: is_number(x) and float(x).is_integer(),
    "array": lambda x: isinstance(x, list),
    "object": lambda x: isinstance(x, dict),
    "defined": lambda x: x is not UNDEFINED,
    "any": lambda _: True,
}


def _on_strings(test: Callable[[str, str], Any]) -> Function:
    def call(text: str, part: str, ignore_case: Any = False) -> Any:  # noqa: FBT002 - as in SQL
        if ignore_case is True:
            return test(text.lower(), part.lower())
        return test(text, part)

    return _typed(call, "string", "string", "any", fewest=2)


def _is(*ranks: int) -> Function:
    return Function(arity=(1, 1), call=lambda value: type_rank(value) in ranks)


def _array_contains(array: Any, wanted: Any, partly: Any = False) -> Any:  # noqa: FBT002
    if partly is True and isinstance(wanted, dict):
        return any(isinstance(x, dict) and _holds(x, wanted) for x in array)
    return any(same(x, wanted) for x in array)


def _holds(value: dict[str, Any], part: dict[str, Any]) -> bool:
    return all(k in value and same(value[k], v) for k, v in part.items())


def _contains(quantifier: Callable[[Any], bool]) -> Function:
    def call(array: Any, *wanted: Any) -> Any:
        if not isinstance(array, list):
            return UNDEFINED
        return quantifier(any(same(x, y) for y in array) for x in wanted)

    return Function(arity=(2, 100), call=call)


def _array_slice(array: list[Any], start: Any, length: Any = None) -> Any:
    first = int(start) if start >= 0 else max(0, len(array) + int(start))
    last = len(array) if length is None else first + max(0, int(length))
    return array[first:last]


def _substring(text: str, start: Any, length: Any) -> str:
    first = max(0, int(start))
    return text[first : first + max(0, int(length))]


def _concatenated(*parts: Any) -> Any:
    if not all(isinstance(x, str) for x in parts):
        return UNDEFINED
    check_size(sum(map(len, parts)))
    return "".join(parts)


def _joined_arrays(*arrays: Any) -> Any:
    if not all(isinstance(x, list) for x in arrays):
        return UNDEFINED
    check_size(sum(map(len, arrays)))
    return [y for x in arrays for y in x]


def _index_of(text: str, part: str, start: Any = 0) -> int:
    return text.find(part, int(start))


def _replicated(text: str, times: Any) -> Any:
    fits = times >= 0 and len(text) * times <= _MAX_REPLICATED
    return text * int(times) if fits else UNDEFINED


def _matching(given: Given, _: Path) -> Callable[..., Any]:
    def matches(text: Any, pattern: Any, flags: Any = "") -> Any:
        fits = all(isinstance(x, str) for x in (text, pattern, flags))
        return is_match(given.budget, text, pattern, flags) if fits else UNDEFINED

    return matches


def _of_time(clock: Callable[[float], Any]) -> QueryFunction:
    """Return a function of the time of day, which stands still while a page is answered."""

    def bound(given: Given, _: Path) -> Callable[..., Any]:
        now = clock(given.now)
        return lambda: now

    return QueryFunction(arity=(0, 0), bound=bound)


def _replaced(text: str, part: str, by: str) -> str:
    check_size(len(text) + (len(by) - len(part)) * text.count(part))
    return text.replace(part, by)


def _to_string(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _from_string(*kinds: str) -> Function:
    """Return what parses a string as JSON, if that gives a value of one of the kinds."""

    def call(text: str) -> Any:
        try:
            value = msgspec.json.decode(text.strip())
        except msgspec.DecodeError:
            return UNDEFINED
        return value if type_rank(value) in ranks else UNDEFINED

    names = {"null": 1, "boolean": 2, "number": 3, "array": 5, "object": 6}
    ranks = {names[x] for x in kinds}
    return _typed(call, "string")


def _rounded(value: Any) -> Any:
    return math.copysign(math.floor(abs(value) + 0.5), value) if value else 0


def _as_whole(value: Any) -> Any:
    whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
    return int(value) if whole else value


def _math(change: Callable[..., Any], arguments: int = 1) -> Function:
    return _typed(lambda *given: _as_whole(change(*given)), *["number"] * arguments)


def _union(left: list[Any], right: list[Any]) -> list[Any]:
    return list({identity(x): x for x in reversed([*left, *right])}.values())[::-1]


def _intersection(left: list[Any], right: list[Any]) -> list[Any]:
    wanted = {identity(x) for x in right}
    return list({identity(x): x for x in left if identity(x) in wanted}.values())


def _whole(call: Callable[..., Any], arguments: int = 2) -> Function:
    return _typed(call, *["whole"] * arguments)


def _chosen(values: tuple[Any, ...]) -> Any:
    """Return the value that the first one counts to, from 1."""
    number, *others = values
    counts = _KINDS["whole"](number) and 1 <= number <= len(others)
    return others[int(number) - 1] if counts else UNDEFINED


def _joined_text(texts: list[Any], between: str) -> Any:
    if not all(isinstance(x, str) for x in texts):
        return UNDEFINED
    check_size(sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)


def _split(text: str, by: str) -> list[str]:
    return text.split(by) if by else [text]


def _document_id(item: dict[str, Any]) -> Any:
    """Return the number of an item in its range, which its resource id ends with."""
    rid = item.get("_rid")
    if not isinstance(rid, str):
        return UNDEFINED
    return int.from_bytes(base64.b64decode(rid.replace("-", "/"))[8:16], "little")


def _pairs(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"k": k, "v": v} for k, v in value.items()]


FUNCTIONS: Final[dict[str, Function | QueryFunction]] = {
    "STARTSWITH": _on_strings(str.startswith),
    "ENDSWITH": _on_strings(str.endswith),
    "CONTAINS": _on_strings(lambda text, part: part in text),
    "STRINGEQUALS": _on_strings(lambda text, other: text == other),
    "LOWER": _typed(str.lower, "string"),
    "UPPER": _typed(str.upper, "string"),
    "LENGTH": _typed(len, "string"),
    "TRIM": _typed(str.strip, "string"),
    "LTRIM": _typed(str.lstrip, "string"),
    "RTRIM": _typed(str.rstrip, "string"),
    "REVERSE": _typed(lambda text: text[::-1], "string"),
    "LEFT": _typed(lambda text, n: text[: max(0, int(n))], "string", "number"),
    "RIGHT": _typed(
        lambda text, n: text[max(0, len(text) - int(n)) :] if n > 0 else "", "string", "number"
    ),
    "SUBSTRING": _typed(_substring, "string", "number", "number"),
    "REPLACE": _typed(_replaced, "string", "string", "string"),
    "REPLICATE": _typed(_replicated, "string", "whole"),
    "INDEX_OF": _typed(_index_of, "string", "string", "whole", fewest=2),
    "CONCAT": Function(arity=(2, 100), call=_concatenated),
    "REGEXMATCH": QueryFunction(arity=(2, 3), bound=_matching),
    "TOSTRING": _typed(_to_string, "defined"),
    "STRINGTONUMBER": _from_string("number"),
    "STRINGTOBOOLEAN": _from_string("boolean"),
    "STRINGTONULL": _from_string("null"),
    "STRINGTOARRAY": _from_string("array"),
    "STRINGTOOBJECT": _from_string("object"),
    "ABS": _math(abs),
    "CEILING": _math(math.ceil),
    "FLOOR": _math(math.floor),
    "ROUND": _math(_rounded),
    "TRUNC": _math(math.trunc),
    "SIGN": _math(lambda x: (x > 0) - (x < 0)),
    "SQRT": _math(math.sqrt),
    "SQUARE": _math(lambda x: float(x) * x),
    "EXP": _math(math.exp),
    "LOG": _typed(lambda x, base=math.e: math.log(x, base), "number", "number", fewest=1),
    "LOG10": _math(math.log10),
    "POWER": _math(math.pow, 2),
    "SIN": _math(math.sin),
    "COS": _math(math.cos),
    "TAN": _math(math.tan),
    "COT": _math(lambda x: 1 / math.tan(x)),
    "ASIN": _math(math.asin),
    "ACOS": _math(math.acos),
    "ATAN": _math(math.atan),
    "ATN2": _math(math.atan2, 2),
    "DEGREES": _math(math.degrees),
    "RADIANS": _math(math.radians),
    "RAND": Function(arity=(0, 0), call=random.random),
    "NUMBERBIN": _typed(
        lambda x, size=1: _as_whole(arithmetic.number_bin(x, size)),
        "number",
        "number",
        fewest=1,
    ),
    "INTADD": _whole(arithmetic.added),
    "INTSUB": _whole(arithmetic.subtracted),
    "INTMUL": _whole(arithmetic.multiplied),
    "INTDIV": _whole(arithmetic.divided),
    "INTMOD": _whole(arithmetic.remainder),
    "INTBITAND": _whole(arithmetic.bit_and),
    "INTBITOR": _whole(arithmetic.bit_or),
    "INTBITXOR": _whole(arithmetic.bit_xor),
    "INTBITNOT": _whole(arithmetic.bit_not, 1),
    "INTBITLEFTSHIFT": _whole(arithmetic.shifted_left),
    "INTBITRIGHTSHIFT": _whole(arithmetic.shifted_right),
    "DATETIMEADD": _typed(dates.added, "string", "whole", "string"),
    "DATETIMEDIFF": _typed(dates.difference, "string", "string", "string"),
    "DATETIMEBIN": _typed(dates.binned, "string", "string", "whole", "string", fewest=2),
    "DATETIMEPART": _typed(dates.part_of, "string", "string"),
    "DATETIMEFROMPARTS": _typed(dates.from_parts, *["whole"] * 7, fewest=3),
    "DATETIMETOTICKS": _typed(dates.ticks_of, "string"),
    "DATETIMETOTIMESTAMP": _typed(dates.timestamp_of, "string"),
    "TICKSTODATETIME": _typed(dates.from_ticks, "whole"),
    "TIMESTAMPTODATETIME": _typed(dates.from_timestamp, "whole"),
    "PI": Function(arity=(0, 0), call=lambda: math.pi),
    "IS_DEFINED": Function(arity=(1, 1), call=lambda value: value is not UNDEFINED),
    "IS_NULL": _is(1),
    "IS_BOOL": _is(2),
    "IS_BOOLEAN": _is(2),
    "IS_NUMBER": _is(3),
    "IS_STRING": _is(4),
    "IS_ARRAY": _is(5),
    "IS_OBJECT": _is(6),
    "IS_PRIMITIVE": _is(1, 2, 3, 4),
    "IS_FINITE_NUMBER": Function(
        arity=(1, 1), call=lambda value: is_number(value) and math.isfinite(value)
    ),
    "IS_INTEGER": Function(arity=(1, 1), call=_KINDS["whole"]),
    "ARRAY_CONTAINS": _typed(_array_contains, "array", "defined", "any", fewest=2),
    "ARRAY_CONTAINS_ANY": _contains(any),
    "ARRAY_CONTAINS_ALL": _contains(all),
    "ARRAY_LENGTH": _typed(len, "array"),
    "ARRAY_CONCAT": Function(arity=(2, 100), call=_joined_arrays),
    "ARRAY_SLICE": _typed(_array_slice, "array", "number", "number", fewest=2),
    "SETUNION": _typed(_union, "array", "array"),
    "SETINTERSECT": _typed(_intersection, "array", "array"),
    "STRINGJOIN": _typed(_joined_text, "array", "string"),
    "STRINGSPLIT": _typed(_split, "string", "string"),
    "CHOOSE": Function(arity=(2, 100), call=lambda *values: _chosen(values)),
    "DOCUMENTID": _typed(_document_id, "object"),
    "OBJECTTOARRAY": _typed(_pairs, "object"),
    "IIF": Function(
        arity=(3, 3), call=lambda test, then, other: then if test is True else other
    ),
    "VECTORDISTANCE": vectors.VECTOR_DISTANCE,
    "_VECTORSCORE": vectors.VECTOR_SCORE,
    "FULLTEXTCONTAINS": fulltext.CONTAINS,
    "FULLTEXTCONTAINSALL": fulltext.CONTAINS_ALL,
    "FULLTEXTCONTAINSANY": fulltext.CONTAINS_ANY,
    "_FULLTEXTSCORE": fulltext.SCORE,
    "_FULLTEXTWORDCOUNT": fulltext.WORD_COUNT,
    **{
        f"{name}{suffix}": _of_time(clock)
        for name, clock in dates.CURRENT.items()
        for suffix in ("", "STATIC")
    },
}
"""All of them; those with a ``_`` before are for query plans only."""
