"""Turns expressions into functions of a row, once for a query and not once for a row.

A row holds a value for each name that FROM and JOIN give. A row that represents a group
has the values of its first member, and under ``GROUP`` a tally for each aggregate.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from cosmos_emulator.errors import bad_request
from cosmos_emulator.json_values import UNDEFINED, value_at
from cosmos_emulator.query.aggregates import Tally
from cosmos_emulator.query.budget import check_size
from cosmos_emulator.query.functions import FUNCTIONS
from cosmos_emulator.query.given import Given, Path, QueryFunction
from cosmos_emulator.query.matching import is_like
from cosmos_emulator.query.syntax import (
    AGGREGATES,
    USER_DEFINED,
    ArrayOf,
    Binary,
    Call,
    Expression,
    Like,
    Literal,
    ObjectOf,
    Parameter,
    Property,
    Select,
    Source,
    Step,
    Subquery,
    Ternary,
    Unary,
    is_constant,
    operands,
)
from cosmos_emulator.query.values import as_number, compared, is_number, same

GROUP: Final = "\0group"
Row = Mapping[str, Any]
Evaluated = Callable[[Row], Any]


Answer = Callable[[Select, Given, Iterable[Row]], Iterator[Any]]
"""Runs a select over the rows that are there before its FROM."""


class Compiler:
    """Compiles the expressions of one query, whose parameters are known."""

    def __init__(self, given: Given, answer: Answer) -> None:
        self._given = given
        self.budget = given.budget
        self._answer = answer
        self._aggregates: list[tuple[str, Evaluated]] = []

    def compiled(self, expression: Expression) -> Evaluated:
        """Return the function that gives the value of an expression for a row."""
        if is_constant(expression) and not isinstance(expression, Literal | Parameter):
            same_for_all = self._evaluated(expression)({})
            return lambda _: same_for_all
        return self._evaluated(expression)

    def _evaluated(  # noqa: C901, PLR0911 - one for each kind of expression
        self, expression: Expression
    ) -> Evaluated:
        match expression:
            case Literal(value=value):
                return lambda _: value
            case Parameter(name=name):
                given = self._parameter(name)
                return lambda _: given
            case Property(root=root, steps=steps):
                found = [self._step(x) for x in steps]
                return lambda row: value_at(row.get(root, UNDEFINED), found)
            case Unary(operator=operator, operand=operand):
                return _unary(operator, self.compiled(operand))
            case Binary(operator="AND" | "OR" as operator):
                parts = [self.compiled(x) for x in operands(expression)]
                return _and(parts) if operator == "AND" else _or(parts)
            case Binary(operator=operator, left=left, right=right):
                return self._binary(operator, self.compiled(left), self.compiled(right))
            case Ternary():
                return self._ternary(expression)
            case Like():
                return self._like(expression)
            case Call():
                return self._call(expression)
            case ArrayOf(members=members):
                parts, made = [self.compiled(x) for x in members], self.budget.made
                return lambda row: made([v for x in parts if (v := x(row)) is not UNDEFINED])
            case ObjectOf(members=named):
                return self.object_of(named)
            case Subquery():
                return self._subquery(expression)

    def object_of(self, members: Iterable[tuple[str, Expression]]) -> Evaluated:
        """Return the function that makes an object of what is defined."""
        pairs, made = [(name, self.compiled(x)) for name, x in members], self.budget.made
        return lambda row: made({k: v for k, x in pairs if (v := x(row)) is not UNDEFINED})

    def tallies(self) -> list[Tally]:
        """Return what adds up the aggregates that were compiled, for one group."""
        return [Tally(name) for name, _ in self._aggregates]

    def add_to(self, tallies: Sequence[Tally], row: Row) -> None:
        for tally, (_, of) in zip(tallies, self._aggregates, strict=True):
            tally.add(of(row))

    def rows(self, sources: Sequence[Source], start: Iterable[Row]) -> Iterator[Row]:
        """Return every row that FROM and JOIN make of those that are there before them."""
        if not sources:
            yield from start
            return
        *before, last = sources
        of = self.compiled(last.of)
        for row in self.rows(before, start):
            value = of(row)
            if not last.each:
                yield {**row, last.name: value}
            elif isinstance(value, list):
                for member in value:
                    self.budget.row()
                    yield {**row, last.name: member}

    def _binary(self, operator: str, left: Evaluated, right: Evaluated) -> Evaluated:
        match operator:
            case "??":
                return lambda row: right(row) if (x := left(row)) is UNDEFINED else x
            case "||":
                made = self.budget.made
                return lambda row: made(_joined(left(row), right(row)))
            case "+" | "-" | "*" | "/" | "%":
                return lambda row: _arithmetic(operator, left(row), right(row))
            case "=" | "!=":
                return self._equality(operator, left, right)
            case _:
                return lambda row: compared(operator, left(row), right(row))

    def _equality(self, operator: str, left: Evaluated, right: Evaluated) -> Evaluated:
        walk = self.budget.walk

        def equal(row: Row) -> Any:
            one, other = left(row), right(row)
            if isinstance(one, list | dict):
                walk(one)
            return compared(operator, one, other)

        return equal

    def _parameter(self, name: str) -> Any:
        if name not in self._given.parameters:
            raise bad_request(f"The query uses {name}, and no such parameter was given.")
        return self._given.parameters[name]

    def _step(self, step: Step) -> Any:
        return self._parameter(step.name) if isinstance(step, Parameter) else step

    def _ternary(self, choice: Ternary) -> Evaluated:
        condition = self.compiled(choice.condition)
        then, otherwise = self.compiled(choice.then), self.compiled(choice.otherwise)
        return lambda row: then(row) if condition(row) is True else otherwise(row)

    def _like(self, like: Like) -> Evaluated:
        value, pattern = self.compiled(like.value), self.compiled(like.pattern)

        def fits(row: Row) -> Any:
            text, wanted = value(row), pattern(row)
            if not isinstance(text, str) or not isinstance(wanted, str):
                return UNDEFINED
            return is_like(text, wanted, like.escape, self.budget)

        return fits

    def _call(self, call: Call) -> Evaluated:
        arguments = [self.compiled(x) for x in call.arguments]
        if call.function in AGGREGATES:
            (of,), place = arguments, len(self._aggregates)
            self._aggregates.append((call.function, of))
            return lambda row: row[GROUP][place].result()
        if call.function == "IN":
            return self._walking(_is_in, arguments)
        if call.function.startswith(USER_DEFINED):
            own = self._given.functions.named(call.function.removeprefix(USER_DEFINED))
            walking, made = self._walking(own, arguments), self.budget.made
            return lambda row: made(walking(row))
        known = FUNCTIONS[call.function]
        if isinstance(known, QueryFunction):
            bound = known.bound(self._given, self._path(call.arguments))
            return lambda row: bound(*(x(row) for x in arguments))
        walking, made = self._walking(known.call, arguments), self.budget.made
        return lambda row: made(walking(row))

    def _path(self, arguments: Iterable[Expression]) -> Path:
        """Return the path of the first argument that is a property of an item."""
        for argument in arguments:
            if isinstance(argument, Property):
                return tuple(self._step(x) for x in argument.steps)
        return ()

    def _walking(
        self, function: Callable[..., Any], arguments: Sequence[Evaluated]
    ) -> Evaluated:
        """Return what calls a function that may go through all of its arguments."""
        step, walk = self.budget.step, self.budget.walk

        def called(row: Row) -> Any:
            given = [x(row) for x in arguments]
            step()
            walk(*given)
            return function(*given)

        return called

    def _subquery(self, subquery: Subquery) -> Evaluated:
        def found(row: Row) -> Iterator[Any]:
            return self._answer(subquery.select, self._given, [row])

        match subquery.kind:
            case "EXISTS":
                return lambda row: next(found(row), UNDEFINED) is not UNDEFINED
            case "ARRAY":
                return lambda row: self.budget.made(list(found(row)))
            case _:
                return lambda row: _only(list(islice(found(row), 2)))


def _only(values: list[Any]) -> Any:
    """Return the value of a scalar subquery: undefined unless it has one result."""
    return values[0] if len(values) == 1 else UNDEFINED


def _is_in(value: Any, *among: Any) -> Any:
    return UNDEFINED if value is UNDEFINED else any(same(value, x) for x in among)


def _unary(operator: str, operand: Evaluated) -> Evaluated:
    if operator == "NOT":
        return lambda row: not x if isinstance(x := operand(row), bool) else UNDEFINED
    factor = -1 if operator == "-" else 1
    return lambda row: factor * x if is_number(x := operand(row)) else UNDEFINED


def _and(parts: Sequence[Evaluated]) -> Evaluated:
    """False wins over undefined; anything that is not true or false counts as undefined."""
    return lambda row: _decided(parts, row, wins=False)


def _or(parts: Sequence[Evaluated]) -> Evaluated:
    return lambda row: _decided(parts, row, wins=True)


def _decided(parts: Sequence[Evaluated], row: Row, *, wins: bool) -> Any:
    found: Any = not wins
    for part in parts:
        value = part(row)
        if value is wins:
            return wins
        if value is not (not wins):
            found = UNDEFINED
    return found


def _joined(left: Any, right: Any) -> Any:
    if not isinstance(left, str) or not isinstance(right, str):
        return UNDEFINED
    check_size(len(left) + len(right))
    return left + right


def _arithmetic(operator: str, left: Any, right: Any) -> Any:
    if not is_number(left) or not is_number(right):
        return UNDEFINED
    match operator:
        case "+":
            return as_number(left + right)
        case "-":
            return as_number(left - right)
        case "*":
            return as_number(left * right)
        case "/":
            return left / right if right else UNDEFINED
        case _:
            return math.fmod(left, right) if right and math.isfinite(left) else UNDEFINED
