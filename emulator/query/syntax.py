"""A query after it was read: values only, no behaviour."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str  # with its @


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """Steps from the item; none is the item itself."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary:
    operator: str
    operand: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    function: str  # upper case
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayOf:
    members: tuple["Expression", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOf:
    members: tuple[tuple[str, "Expression"], ...]


Expression = Literal | Parameter | Property | Unary | Binary | Call | ArrayOf | ObjectOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One expression of a projection, under its name."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """``columns`` is empty for ``*`` and for ``VALUE``; ``value`` is set for ``VALUE``."""

    value: Expression | None = None
    columns: tuple[Column, ...] = ()
    where: Expression | None = None
    order: tuple[Order, ...] = ()
    offset: Expression | None = None
    limit: Expression | None = None  # of LIMIT or TOP

    @property
    def is_whole(self) -> bool:
        """Whether the result is the items as they are stored."""
        return not self.columns and (self.value is None or self.value == Property(steps=()))

    @property
    def is_count(self) -> bool:
        expressions = [x.expression for x in self.columns]
        if self.value is not None:
            expressions.append(self.value)
        return any(isinstance(x, Call) and x.function == "COUNT" for x in expressions)

    @property
    def is_simple(self) -> bool:
        """Whether each range can answer for itself, and the answers just be put together."""
        return not (self.order or self.is_count or self.limit or self.offset)
