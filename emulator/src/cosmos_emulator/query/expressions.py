"""Reads expressions: operands, and operators by how strongly they bind."""

from abc import abstractmethod
from typing import Final

from cosmos_emulator.errors import bad_request
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.cursor import Cursor, is_plain_name, refused
from cosmos_emulator.query.functions import FUNCTIONS
from cosmos_emulator.query.limits import check_count
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
    Step,
    Subquery,
    Ternary,
    Unary,
    has_aggregate,
)
from cosmos_emulator.query.tokens import Token

RANKING: Final = frozenset({"FULLTEXTSCORE", "RRF"})
"""The functions that only ORDER BY RANK takes."""
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_EXACT_DIGITS: Final = 19  # longer ones are beyond 64 bits
_COMPARISONS: Final = frozenset({"=", "!=", "<>", "<", "<=", ">", ">="})
_NOT: Final = 3
_COMPARED: Final = 4
_BINDINGS: Final = {
    "??": 0,
    "OR": 1,
    "AND": 2,
    **dict.fromkeys([*_COMPARISONS, "NOT", "IN", "BETWEEN", "LIKE"], _COMPARED),
    "||": 5,
    **dict.fromkeys(["+", "-"], 6),
    **dict.fromkeys(["*", "/", "%"], 7),
}
"""How strongly operators bind: those with a higher number come first."""


class Expressions(Cursor):
    """``names`` are those that FROM and JOIN gave, of this query and of those around it."""

    def __init__(self, text: str, budget: Budget) -> None:
        super().__init__(text, budget)
        self.names: tuple[str, ...] = ("c",)

    @abstractmethod
    def select(self) -> Select:
        """Read a query inside brackets, from behind its SELECT."""

    def expression(self) -> Expression:
        condition = self._operands(0)
        if not self.took_sign("?"):
            return condition
        then = self.expression()
        self.expect_sign(":")
        return Ternary(condition=condition, then=then, otherwise=self.expression())

    def _operands(self, least: int) -> Expression:
        """Read an operand, and what operators join to it that bind so strongly at least."""
        if least <= _NOT and self.took("NOT"):
            left: Expression = Unary(operator="NOT", operand=self._operands(_NOT))
        else:
            left = self._sign()
        while (binding := self._binding()) >= least:
            left = self._compared(left) if binding == _COMPARED else self._joined(left, binding)
        return left

    def _binding(self) -> int:
        """Return how strongly the operator ahead binds; -1 where there is none."""
        token = self.peek()
        if token.kind not in {"sign", "name"}:
            return -1
        return _BINDINGS.get(token.text.upper(), -1)

    def _joined(self, left: Expression, binding: int) -> Expression:
        operator = self.advance().text.upper()
        if operator in {"AND", "OR"}:
            self.count(operator)
        return Binary(operator=operator, left=left, right=self._operands(binding + 1))

    def _compared(self, left: Expression) -> Expression:
        if self.at_sign(*_COMPARISONS):
            operator = self.advance().text
            operator = "!=" if operator == "<>" else operator
            return Binary(operator=operator, left=left, right=self._operands(_COMPARED + 1))
        negated = self.took("NOT")
        if self.took("IN"):
            left = Call(function="IN", arguments=(left, *self._among()))
        elif self.took("BETWEEN"):
            low = self._operands(_COMPARED + 1)
            self.expect("AND")
            left = _between(left, low, self._operands(_COMPARED + 1))
        elif self.took("LIKE"):
            pattern = self._operands(_COMPARED + 1)
            left = Like(value=left, pattern=pattern, escape=self._escape())
        else:
            raise self.unexpected()
        return Unary(operator="NOT", operand=left) if negated else left

    def primary(self) -> Expression:
        token = self.peek()
        if token.kind == "sign":
            return self._bracketed()
        if token.kind not in {"number", "string", "parameter", "name"}:
            raise self.unexpected()
        self.advance()
        match token.kind:
            case "number":
                return Literal(value=_number(token.text))
            case "string":
                return Literal(value=token.text)
            case "parameter":
                return Parameter(name=token.text)
            case _:
                return self._named(token)

    def steps(self) -> tuple[Step, ...]:
        """Read ``.a["b"][0][@c]``."""
        steps: list[Step] = []
        while True:
            if self.took_sign("."):
                name = self.advance()
                if name.kind != "name":
                    raise self.unexpected(name)
                steps.append(name.text)
            elif self.took_sign("["):
                steps.append(_index(self.advance()))
                self.expect_sign("]")
            else:
                return tuple(steps)

    def _escape(self) -> str | None:
        if not self.took("ESCAPE"):
            return None
        token = self.advance()
        if token.kind != "string" or len(token.text) != 1:
            raise bad_request(f"ESCAPE takes one character, not {token.text!r}.")
        return token.text

    def _sign(self) -> Expression:
        if self.at_sign("-", "+"):
            return Unary(operator=self.advance().text, operand=self._sign())
        return self.primary()

    def _bracketed(self) -> Expression:
        if self.took_sign("("):
            if self.took("SELECT"):
                return self._subquery("VALUE")
            inner = self.expression()
            self.expect_sign(")")
            return inner
        if self.took_sign("["):
            return ArrayOf(members=tuple(self._listed("]")))
        if self.took_sign("{"):
            return self._object()
        raise self.unexpected()

    def _subquery(self, kind: str) -> Expression:
        select = self.select()
        self.expect_sign(")")
        return Subquery(kind=kind, select=select)

    def _named(self, token: Token) -> Expression:
        word = token.text.upper()
        if word in _CONSTANTS:
            return Literal(value=_CONSTANTS[word])
        if word == "UNDEFINED":
            return Property(root="", steps=())
        if word in {"EXISTS", "ARRAY"} and self.took_sign("("):
            self.expect("SELECT")
            return self._subquery(word)
        if self.at_sign("("):
            return self._call(token)
        if token.text in self.names:
            return Property(root=token.text, steps=self.steps())
        if word == "UDF" and self.took_sign("."):
            name = self.advance().text
            return Call(function=USER_DEFINED + name, arguments=tuple(self._arguments()))
        if not is_plain_name(token):
            raise self.unexpected(token)
        raise bad_request(
            f"Identifier {token.text!r} could not be resolved: the query calls the item "
            f"{self.names[0]!r}. Say {self.names[0]}.{token.text} for its property."
        )

    def _call(self, token: Token) -> Expression:
        word = token.text.upper()
        if not any(word in x for x in (FUNCTIONS, AGGREGATES, RANKING)):
            raise refused(f"The function {word}")
        arguments = tuple(self._arguments())
        if word in RANKING:
            raise bad_request(
                f"One of the input values is invalid: {word} can only be used in ORDER BY RANK."
            )
        if word in AGGREGATES and any(has_aggregate(x) for x in arguments):
            raise bad_request(f"{word} is of another aggregate: a group has one value of each.")
        known = FUNCTIONS.get(word)
        fewest, most = known.arity if known else (1, 1)
        if not fewest <= len(arguments) <= most:
            raise bad_request(f"The function {word} takes {fewest} to {most} arguments.")
        return Call(function=word, arguments=arguments)

    def _arguments(self) -> list[Expression]:
        self.expect_sign("(")
        return self._listed(")")

    def _among(self) -> list[Expression]:
        """Read what stands in brackets behind IN."""
        self.expect_sign("(")
        found = [self.expression()]
        while not self.took_sign(")"):
            self.expect_sign(",")
            found.append(self.expression())
            check_count("value of IN", len(found))
        return found

    def _listed(self, closing: str) -> list[Expression]:
        found: list[Expression] = []
        while not self.took_sign(closing):
            if found:
                self.expect_sign(",")
            found.append(self.expression())
        return found

    def _object(self) -> Expression:
        members: list[tuple[str, Expression]] = []
        while not self.took_sign("}"):
            if members:
                self.expect_sign(",")
            name = self.advance()
            if name.kind not in {"string", "name"}:
                raise self.unexpected(name)
            self.expect_sign(":")
            members.append((name.text, self.expression()))
        return ObjectOf(members=tuple(members))


def _between(value: Expression, low: Expression, high: Expression) -> Expression:
    above = Binary(operator=">=", left=value, right=low)
    return Binary(
        operator="AND", left=above, right=Binary(operator="<=", left=value, right=high)
    )


def _index(inner: Token) -> Step:
    """Return what stands in brackets behind a path."""
    match inner.kind:
        case "parameter":
            return Parameter(name=inner.text)
        case "string":
            return inner.text
        case "number":
            position = _number(inner.text)
            return position if isinstance(position, int) else inner.text
        case _:
            raise refused("An index that is not a plain number, string or parameter")


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() and len(text) <= _EXACT_DIGITS else float(text)
