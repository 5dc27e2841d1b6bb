"""A query after it was read: values only, no behaviour."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

AGGREGATES: Final = {
    "COUNT": "Count",
    "COUNTIF": "CountIf",
    "SUM": "Sum",
    "AVG": "Average",
    "MIN": "Min",
    "MAX": "Max",
}
"""The functions over a whole group, and what query plans call them."""
SCORES: Final = frozenset({"_VECTORSCORE", "_FULLTEXTSCORE"})
"""The functions that say how well an item fits a search."""
ROOT: Final = "\0item"
"""What a query calls the item whose own name it does not say."""
USER_DEFINED: Final = "udf."
"""What the name of a user-defined function begins with, where it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str  # with its @


Step: TypeAlias = str | int | Parameter
"""A name or a position: as it stands in the query, or as a parameter says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """Steps from what ``root`` names in FROM; none is that itself."""

    root: str
    steps: tuple[Step, ...]


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
class Ternary:
    """``condition ? then : otherwise``."""

    condition: "Expression"
    then: "Expression"
    otherwise: "Expression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    value: "Expression"
    pattern: "Expression"
    escape: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    function: str  # upper case, unless it is user-defined
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayOf:
    members: tuple["Expression", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOf:
    members: tuple[tuple[str, "Expression"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subquery:
    """A query inside another. ``kind`` is VALUE (one value), ARRAY or EXISTS."""

    kind: str
    select: "Select"


Expression = (
    Literal
    | Parameter
    | Property
    | Unary
    | Binary
    | Ternary
    | Like
    | Call
    | ArrayOf
    | ObjectOf
    | Subquery
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One expression of a projection, under its name."""

    name: str
    expression: Expression
    text: str  # as it was written


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    expression: Expression
    descending: bool
    text: str

    @property
    def is_by_score(self) -> bool:
        """Whether a search gives the order, which no index knows beforehand."""
        return mentions(self.expression, SCORES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One function of ORDER BY RANK, with its arguments as they were written."""

    function: str  # upper case
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """ORDER BY RANK. ``weights`` is an array with a number for each component.

    ``scores`` are what the components say of an item: they are known once the statistics of
    all items are.
    """

    components: tuple[Component, ...]
    weights: Expression | None = None
    scores: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What FROM or JOIN gives a name: a value, or each member of an array in turn."""

    name: str
    of: Expression
    each: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """``columns`` is empty for ``*`` and for ``VALUE``; ``value`` is set for ``VALUE``.

    ``item`` is the name by which the query calls the item itself. ``limit`` is that of
    LIMIT or TOP. ``over`` is the query that stands in FROM, whose results are then the items.
    The texts are what a query plan is put together from.
    """

    item: str = "c"
    over: "Select | None" = None
    sources: tuple[Source, ...] = ()
    distinct: bool = False
    value: Column | None = None
    columns: tuple[Column, ...] = ()
    where: Expression | None = None
    group: tuple[Column, ...] = ()
    order: tuple[Order, ...] = ()
    rank: Rank | None = None
    offset: Expression | None = None
    limit: Expression | None = None
    has_top: bool = False
    from_text: str = ""
    where_text: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the result is the items as they are stored."""
        if self.columns or self.sources or self.over:
            return False
        whole = Property(root=self.item, steps=())
        return self.value is None or self.value.expression == whole

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns, or the one that follows VALUE."""
        return self.columns or ((self.value,) if self.value else ())

    @property
    def is_aggregate(self) -> bool:
        """Whether a result represents many items."""
        return bool(self.group) or any(has_aggregate(x.expression) for x in self.shown)

    @property
    def drops_in_order(self) -> bool:
        """Whether what is there twice is dropped behind the order."""
        return self.distinct and bool(self.order)

    @property
    def is_topped(self) -> bool:
        """Whether a plan says TOP, and not LIMIT: of TOP n, clients read n rows of a range."""
        return self.has_top and not self.drops_in_order

    @property
    def is_simple(self) -> bool:
        """Whether each range can answer for itself, and the answers just be put together."""
        whole = self.order or self.rank or self.limit or self.offset or self.distinct
        return not (whole or self.is_aggregate) and (self.over is None or self.over.is_simple)

    @property
    def root(self) -> str:
        """The name by which the innermost query in FROM calls an item of the container."""
        return self.item if self.over is None else self.over.root

    @property
    def is_streamed(self) -> bool:
        """Whether the answer can be given item by item, with at most one result for each."""
        return self.is_simple and not self.sources and self.over is None


def operands(chain: Binary) -> list[Expression]:
    """Return what one operator joins, from left to right: hundreds, without recursion."""
    found: list[Expression] = []
    left: Expression = chain
    while isinstance(left, Binary) and left.operator == chain.operator:
        found.append(left.right)
        left = left.left
    return [left, *reversed(found)]


def has_aggregate(expression: Expression) -> bool:
    """Return whether an expression is about a group; a query inside it has its own."""
    return mentions(expression, AGGREGATES)


def mentions(expression: Expression, functions: Collection[str]) -> bool:
    """Return whether one of some functions is called in an expression."""
    return any(isinstance(x, Call) and x.function in functions for x in _all_of(expression))


def is_constant(expression: Expression) -> bool:
    """Return whether an expression is written out: a number with its sign, an array of some."""
    plain = (Literal, Parameter, ArrayOf, ObjectOf)
    return all(
        isinstance(x, plain) or (isinstance(x, Unary) and isinstance(x.operand, Literal))
        for x in _all_of(expression)
    )


def _all_of(expression: Expression) -> Iterator[Expression]:
    """Give an expression and all inside it, but for queries inside it."""
    waiting = [expression]  # no recursion: hundreds of conditions are as many levels
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(_parts(part))


def is_of_groups(expression: Expression, keys: Collection[Expression]) -> bool:
    """Return whether an expression has one value for a group: a key, or an aggregate."""
    if expression in keys or (
        isinstance(expression, Call) and expression.function in AGGREGATES
    ):
        return True
    if isinstance(expression, Property):
        return not expression.root
    return all(is_of_groups(x, keys) for x in _parts(expression))


def _parts(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Subquery():
            return
        case Call(arguments=members) | ArrayOf(members=members):
            yield from members
        case ObjectOf(members=named):
            yield from (x for _, x in named)
        case _:
            values = (getattr(expression, x.name) for x in fields(expression))
            yield from (x for x in values if isinstance(x, Expression))
