"""What columns bodies have, judged by some of them: the DDL that ``body_schema`` takes.

Of each place in the bodies the values are counted by their type. The column gets the type
that most of them have, or STRING, which takes any JSON as text, where as many are STRING,
or none has a value. What then does not fit is returned beside the schema, since a body with
such a value goes to ``rescued`` (``source.body_schema``). BIGINT and DOUBLE are one type,
DOUBLE, where both are seen.

It is for people: a schema that a stream would infer by itself changes with what it has read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from changefeed.runtime.errors import UserError

_BIGINT, _LARGE, _DOUBLE, _STRING = "BIGINT", "DECIMAL(38,0)", "DOUBLE", "STRING"
_BOOLEAN, _ARRAY, _STRUCT = "BOOLEAN", "ARRAY", "STRUCT"
_NUMBERS: Final = (_BIGINT, _LARGE, _DOUBLE)
"""The narrower first."""
_NO_JSON: Final = "no JSON"
_DEEPEST: Final = 50
_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """A place in bodies with values that its column does not take.

    ``types`` is how often each type was seen there, in ``of`` values that are not null, of
    which ``misfits`` do not fit ``column``. That is empty for a name that differs from the one
    of another column in case alone, which SQL takes for the same.
    """

    path: str
    column: str
    types: Mapping[str, int]
    misfits: int
    of: int


class BodySchema(msgspec.Struct, frozen=True, kw_only=True):
    """What some bodies have in common: the DDL, and what of them does not fit."""

    body_schema: str
    bodies: int
    misfits: Sequence[Misfit]


@dataclass(slots=True)
class _Place:
    """The values that were seen at one place of the bodies. Null is none."""

    types: Counter[str] = field(default_factory=Counter)
    fields: dict[str, "_Place"] = field(default_factory=dict)
    items: "_Place | None" = None

    def add(self, value: Any, depth: int = 0) -> None:
        """Count a value, and what is in it: as text, from the deepest place on."""
        if value is None:
            return
        kind = _type_of(value) if depth < _DEEPEST else _STRING
        self.types[kind] += 1
        if kind == _STRUCT:
            for name, inner in value.items():
                self.fields.setdefault(name, _Place()).add(inner, depth + 1)
        elif kind == _ARRAY:
            self.items = items = self.items or _Place()
            for inner in value:
                items.add(inner, depth + 1)

    @property
    def of(self) -> int:
        return self.types.total()

    @property
    def type(self) -> str:
        """The type that the column gets, without what is in it."""
        numbers = [x for x in _NUMBERS if self.types[x]]
        counts = Counter({x: self.types[x] for x in (_BOOLEAN, _ARRAY, _STRUCT)})
        if numbers:
            counts[numbers[-1]] = sum(self.types[x] for x in numbers)
        ((most, count),) = counts.most_common(1)
        empty = most == _STRUCT and not self.fields  # a table has no column without fields
        return _STRING if empty or self.types[_STRING] >= count else most

    @property
    def column(self) -> str:
        """The type of the column, as Spark writes it."""
        kind = self.type
        if kind == _STRUCT:
            return f"STRUCT<{self.columns(': ')}>"
        if kind == _ARRAY:
            assert self.items is not None, "it has arrays"
            return f"ARRAY<{self.items.column}>"
        return kind

    def columns(self, between: str) -> str:
        """Return the fields as columns."""
        return ", ".join(f"{_quoted(x)}{between}{y.column}" for x, y in self._named())

    def misfits(self, path: str, kind: str) -> Iterator[Misfit]:
        """Yield what a column of this type does not take here, and below."""
        taken = _NUMBERS if kind in _NUMBERS else (kind,)
        fits = self.of if kind == _STRING else sum(self.types[x] for x in taken)
        if fits < self.of:
            yield self._misfit(path, kind, self.of - fits)
        if kind == _ARRAY and self.items is not None:
            yield from self.items.misfits(f"{path}[*]", self.items.type)
        if kind == _STRUCT:
            named = dict(self._named())
            for name, inner in self.fields.items():
                place = f"{path}.{name}"
                if name in named:
                    yield from inner.misfits(place, inner.type)
                else:
                    yield inner._misfit(place, "", inner.of)  # noqa: SLF001 - of this class

    def _misfit(self, path: str, column: str, misfits: int) -> Misfit:
        types = dict(self.types.most_common())
        return Misfit(path=path, column=column, types=types, misfits=misfits, of=self.of)

    def _named(self) -> Iterator[tuple[str, "_Place"]]:
        """Yield the fields. Of names that differ in case alone SQL knows one: the first."""
        seen = set[str]()
        for name, inner in self.fields.items():
            if name.lower() not in seen:
                seen.add(name.lower())
                yield name, inner


def body_schema_of(bodies: Iterable[bytes | str]) -> BodySchema:
    """Return the schema that most of some bodies have.

    Raise ``UserError`` if none is a JSON object with a field: there are no columns.
    """
    root, count = _Place(), 0
    for count, body in enumerate(bodies, start=1):  # noqa: B007 - the last one
        try:
            root.add(msgspec.json.decode(body))
        except (msgspec.DecodeError, RecursionError):
            root.types[_NO_JSON] += 1
    if not count:
        raise UserError(
            "the feed has no bodies yet to take a schema from: write some changes first"
        )
    if not root.fields:
        seen = ", ".join(f"{n} {x}" for x, n in root.types.items()) or "all null"
        raise UserError(
            f"none of {count} sampled bodies is a JSON object with fields ({seen}): "
            f"leave body_schema out, or write 'variant'"
        )
    return BodySchema(
        body_schema=root.columns(" "), bodies=count, misfits=[*root.misfits("$", _STRUCT)]
    )


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return _BOOLEAN
        case int():
            return _BIGINT if -(2**63) <= value < 2**63 else _LARGE
        case float():
            return _DOUBLE
        case str():
            return _STRING
        case list():
            return _ARRAY
        case _:
            return _STRUCT


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"
