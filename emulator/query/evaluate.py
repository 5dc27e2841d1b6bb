"""Turns expressions into functions of an item, once for a query and not once for an item."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from changefeed.emulator.errors import bad_request
from changefeed.emulator.json_values import UNDEFINED, value_at
from changefeed.emulator.query.functions import FUNCTIONS, compared, same
from changefeed.emulator.query.syntax import (
    ArrayOf,
    Binary,
    Call,
    Expression,
    Literal,
    ObjectOf,
    Parameter,
    Property,
    Unary,
)

Evaluated = Callable[[Any], Any]


def compiled(  # noqa: PLR0911 - one for each kind of expression
    expression: Expression, parameters: Mapping[str, Any]
) -> Evaluated:
    """Return the function that gives the value of an expression for an item."""
    match expression:
        case Literal(value=value):
            return lambda _: value
        case Parameter(name=name):
            if name not in parameters:
                raise bad_request(f"The query uses {name}, and no such parameter was given.")
            given = parameters[name]
            return lambda _: given
        case Property(steps=steps):
            return lambda item: value_at(item, steps)
        case Unary(operator=operator, operand=operand):
            return _unary(operator, compiled(operand, parameters))
        case Binary(operator=operator, left=left, right=right):
            return _binary(operator, compiled(left, parameters), compiled(right, parameters))
        case Call():
            return _call(expression, parameters)
        case ArrayOf(members=members):
            parts = [compiled(x, parameters) for x in members]
            return lambda item: [v for x in parts if (v := x(item)) is not UNDEFINED]
        case ObjectOf(members=named):
            pairs = [(name, compiled(x, parameters)) for name, x in named]
            return lambda item: {k: v for k, x in pairs if (v := x(item)) is not UNDEFINED}


def _call(call: Call, parameters: Mapping[str, Any]) -> Evaluated:
    arguments = [compiled(x, parameters) for x in call.arguments]
    if call.function == "IN":
        return lambda item: _is_in(*(x(item) for x in arguments))
    if call.function == "COUNT":
        raise bad_request("COUNT may only be selected, alone: SELECT VALUE COUNT(1) FROM c.")
    function = FUNCTIONS[call.function].call
    return lambda item: function(*(x(item) for x in arguments))


def _is_in(value: Any, *among: Any) -> Any:
    return UNDEFINED if value is UNDEFINED else any(same(value, x) for x in among)


def _unary(operator: str, operand: Evaluated) -> Evaluated:
    if operator == "NOT":
        return lambda item: not x if isinstance(x := operand(item), bool) else UNDEFINED
    factor = -1 if operator == "-" else 1
    return lambda item: factor * x if _is_number(x := operand(item)) else UNDEFINED


def _binary(operator: str, left: Evaluated, right: Evaluated) -> Evaluated:
    match operator:
        case "AND":
            return _and(left, right)
        case "OR":
            return _or(left, right)
        case "||":
            return lambda item: _joined(left(item), right(item))
        case "+" | "-" | "*" | "/" | "%":
            return lambda item: _arithmetic(operator, left(item), right(item))
        case _:
            return lambda item: compared(operator, left(item), right(item))


def _and(left: Evaluated, right: Evaluated) -> Evaluated:
    """False wins over undefined; anything that is not true or false counts as undefined."""

    def both(item: Any) -> Any:
        first = left(item)
        return False if first is False else _third(first, right(item), wins=False)

    return both


def _or(left: Evaluated, right: Evaluated) -> Evaluated:
    def either(item: Any) -> Any:
        first = left(item)
        return True if first is True else _third(first, right(item), wins=True)

    return either


def _third(left: Any, right: Any, *, wins: bool) -> Any:
    if right is wins:
        return wins
    return (not wins) if left is right is (not wins) else UNDEFINED


def _joined(left: Any, right: Any) -> Any:
    return left + right if isinstance(left, str) and isinstance(right, str) else UNDEFINED


def _arithmetic(operator: str, left: Any, right: Any) -> Any:
    if not _is_number(left) or not _is_number(right):
        return UNDEFINED
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right if right else UNDEFINED
        case _:
            return math.fmod(left, right) if right else UNDEFINED


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
