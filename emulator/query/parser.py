"""Reads a query by recursive descent, one method for each level of binding.

What Cosmos DB understands and this does not is refused by name, with what may be said
instead.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from changefeed.emulator.errors import CosmosError, bad_request, not_supported
from changefeed.emulator.query.functions import FUNCTIONS
from changefeed.emulator.query.syntax import (
    ArrayOf,
    Binary,
    Call,
    Column,
    Expression,
    Literal,
    ObjectOf,
    Order,
    Parameter,
    Property,
    Select,
    Unary,
)
from changefeed.emulator.query.tokens import Token, tokens_of

_FUNCTIONS: Final = ", ".join(sorted(FUNCTIONS))
UNDERSTOOD: Final = " ".join(
    (
        "It understands: SELECT [TOP n] and *, VALUE x, or x [AS name], …;",
        "FROM c; WHERE; ORDER BY x [DESC], …; OFFSET n LIMIT m; COUNT, comparisons, AND, OR,",
        f"NOT, IN, BETWEEN, arithmetic, ||, and the functions {_FUNCTIONS}.",
    )
)
_UNSUPPORTED_WORDS: Final = frozenset(
    {"JOIN", "GROUP", "DISTINCT", "EXISTS", "LIKE", "HAVING", "UNION", "RANK", "ARRAY"}
)
_KEYWORDS: Final = frozenset(
    {"SELECT", "TOP", "VALUE", "AS", "FROM", "WHERE", "ORDER", "BY", "ASC", "DESC", "OFFSET"}
    | {"LIMIT", "AND", "OR", "NOT", "IN", "BETWEEN", "TRUE", "FALSE", "NULL", "UNDEFINED"}
)
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_COMPARISONS: Final = frozenset({"=", "!=", "<>", "<", "<=", ">", ">="})


def parse(text: str) -> Select:
    """Return the query that a text says; 400 with advice if it cannot be run here."""
    try:
        return _Parser(text).query()
    except RecursionError:
        raise bad_request("The query is nested too deeply.") from None


def parse_condition(text: str) -> Select:
    """Read the condition of a patch: ``FROM c WHERE …``."""
    return _Parser(text).from_and_where(Select())


def _refused(what: str) -> CosmosError:
    return not_supported(f"{what} in a query", UNDERSTOOD)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0
        self._root = "c"
        for i, token in enumerate(self._tokens[1:], start=1):
            # FROM comes after what it names, so its alias is looked up first
            if token.is_word("FROM") and self._tokens[i - 1].text != ".":
                self._root = self._alias(i + 1)

    def query(self) -> Select:
        self._expect("SELECT")
        if self._peek().is_word("DISTINCT"):
            raise _refused("DISTINCT")
        top = self._primary() if self._took("TOP") else None
        head = self._projection()
        found = self._tail(self.from_and_where(head))
        if top is not None:
            if found.limit is not None:
                raise bad_request("A query has either TOP or OFFSET … LIMIT, not both.")
            found = replace(found, limit=top)
        self._at_end()
        return found

    def from_and_where(self, head: Select) -> Select:
        """Read ``FROM c WHERE …``; a query without FROM is about the item called c."""
        if self._took("FROM"):
            self._advance()
            if self._took("AS") or _is_plain_name(self._peek()):
                self._advance()
            if self._peek().is_word("IN") or self._peek().text in {".", "[", ","}:
                raise _refused("FROM over anything but the whole container")
        return replace(head, where=self._expression()) if self._took("WHERE") else head

    def _alias(self, at: int) -> str:
        """Return the name by which the query calls the item; FROM stands before ``at``."""
        named = self._tokens[at]
        if named.kind != "name":
            raise self._unexpected(named)
        after = self._tokens[at + 1]
        if after.is_word("AS"):
            return self._tokens[at + 2].text
        return after.text if _is_plain_name(after) else named.text

    def _projection(self) -> Select:
        if self._took_sign("*"):
            return Select()
        if self._took("VALUE"):
            return Select(value=self._expression())
        columns: list[Column] = []
        while True:
            expression = self._expression()
            name = self._advance().text if self._took("AS") else _name_of(expression)
            columns.append(Column(name=name or f"${len(columns) + 1}", expression=expression))
            if not self._took_sign(","):
                break
        selected = Select(columns=tuple(columns))
        if selected.is_count and len(columns) > 1:
            raise _refused("COUNT beside other columns")
        return selected

    def _tail(self, head: Select) -> Select:
        order: list[Order] = []
        if self._took("ORDER"):
            self._expect("BY")
            while True:
                expression = self._expression()
                descending = self._took("DESC") or (self._took("ASC") and False)
                order.append(Order(expression=expression, descending=descending))
                if not self._took_sign(","):
                    break
        found = replace(head, order=tuple(order))
        if self._took("OFFSET"):
            offset = self._primary()
            self._expect("LIMIT")
            found = replace(found, offset=offset, limit=self._primary())
        return found

    # Expressions, from what binds least to what binds most.

    def _expression(self) -> Expression:
        return self._left_to_right(self._conjunction, lambda x: x.is_word("OR"))

    def _conjunction(self) -> Expression:
        return self._left_to_right(self._negation, lambda x: x.is_word("AND"))

    def _negation(self) -> Expression:
        if self._took("NOT"):
            return Unary(operator="NOT", operand=self._negation())
        return self._comparison()

    def _comparison(self) -> Expression:
        left = self._concatenation()
        while self._peek().kind == "sign" and self._peek().text in _COMPARISONS:
            operator = self._advance().text
            right = self._concatenation()
            operator = "!=" if operator == "<>" else operator
            left = Binary(operator=operator, left=left, right=right)
        negated = self._took("NOT")
        if self._took("IN"):
            left = Call(function="IN", arguments=(left, *self._arguments()))
        elif self._took("BETWEEN"):
            low = self._concatenation()
            self._expect("AND")
            left = _between(left, low, self._concatenation())
        elif negated:
            raise self._unexpected()
        return Unary(operator="NOT", operand=left) if negated else left

    def _concatenation(self) -> Expression:
        return self._left_to_right(self._sum, lambda x: x.text == "||")

    def _sum(self) -> Expression:
        return self._left_to_right(self._product, lambda x: x.text in {"+", "-"})

    def _product(self) -> Expression:
        return self._left_to_right(self._sign, lambda x: x.text in {"*", "/", "%"})

    def _sign(self) -> Expression:
        if self._peek().kind == "sign" and self._peek().text in {"-", "+"}:
            return Unary(operator=self._advance().text, operand=self._sign())
        return self._primary()

    def _primary(self) -> Expression:
        token = self._peek()
        if token.kind == "sign":
            return self._bracketed()
        if token.is_word("SELECT"):
            raise _refused("A subquery")
        if token.kind not in {"number", "string", "parameter", "name"}:
            raise self._unexpected()
        self._advance()
        match token.kind:
            case "number":
                return Literal(value=_number(token.text))
            case "string":
                return Literal(value=token.text)
            case "parameter":
                return Parameter(name=token.text)
            case _:
                return self._named(token)

    def _bracketed(self) -> Expression:
        if self._took_sign("("):
            if self._peek().is_word("SELECT"):
                raise _refused("A subquery")
            inner = self._expression()
            self._expect_sign(")")
            return inner
        if self._took_sign("["):
            return ArrayOf(members=tuple(self._listed("]")))
        if self._took_sign("{"):
            return self._object()
        raise self._unexpected()

    def _named(self, token: Token) -> Expression:
        word = token.text.upper()
        if word in _CONSTANTS:
            return Literal(value=_CONSTANTS[word])
        if word == "UNDEFINED":
            return Property(steps=("\0undefined",))
        if _unsupported(token) and token.text != self._root:
            raise _refused(word)
        if self._peek().text == "(":
            return self._call(word)
        if token.text != self._root:
            if word == "UDF":
                raise _refused("A user-defined function")
            if word in _KEYWORDS:
                raise self._unexpected(token)
            raise bad_request(
                f"Identifier {token.text!r} could not be resolved: the query calls the item "
                f"{self._root!r}. Say {self._root}.{token.text} for its property."
            )
        return Property(steps=tuple(self._steps()))

    def _call(self, word: str) -> Expression:
        arguments = tuple(self._arguments())
        if word == "COUNT":
            return Call(function=word, arguments=arguments)
        if word not in FUNCTIONS:
            raise _refused(f"The function {word}")
        fewest, most = FUNCTIONS[word].arity
        if not fewest <= len(arguments) <= most:
            raise bad_request(f"The function {word} takes {fewest} to {most} arguments.")
        return Call(function=word, arguments=arguments)

    def _steps(self) -> list[str | int]:
        steps: list[str | int] = []
        while True:
            if self._took_sign("."):
                name = self._advance()
                if name.kind != "name":
                    raise self._unexpected(name)
                steps.append(name.text)
            elif self._took_sign("["):
                inner = self._advance()
                if inner.kind not in {"string", "number"}:
                    raise _refused("An index that is not a plain number or string")
                steps.append(int(inner.text) if inner.kind == "number" else inner.text)
                self._expect_sign("]")
            else:
                return steps

    def _arguments(self) -> list[Expression]:
        self._expect_sign("(")
        return self._listed(")")

    def _listed(self, closing: str) -> list[Expression]:
        found: list[Expression] = []
        while not self._took_sign(closing):
            if found:
                self._expect_sign(",")
            found.append(self._expression())
        return found

    def _object(self) -> Expression:
        members: list[tuple[str, Expression]] = []
        while not self._took_sign("}"):
            if members:
                self._expect_sign(",")
            name = self._advance()
            if name.kind not in {"string", "name"}:
                raise self._unexpected(name)
            self._expect_sign(":")
            members.append((name.text, self._expression()))
        return ObjectOf(members=tuple(members))

    def _left_to_right(
        self, part: Callable[[], Expression], is_operator: Callable[[Token], bool]
    ) -> Expression:
        found = part()
        while is_operator(self._peek()) and self._peek().kind in {"sign", "name"}:
            operator = self._advance().text.upper()
            found = Binary(operator=operator, left=found, right=part())
        return found

    # Tokens.

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._tokens[self._next]
        if token.kind == "end":
            raise self._unexpected()
        self._next += 1
        return token

    def _took(self, word: str) -> bool:
        found = self._peek().is_word(word)
        self._next += found
        return found

    def _took_sign(self, sign: str) -> bool:
        found = self._peek().kind == "sign" and self._peek().text == sign
        self._next += found
        return found

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise self._unexpected()

    def _expect_sign(self, sign: str) -> None:
        if not self._took_sign(sign):
            raise self._unexpected()

    def _at_end(self) -> None:
        if self._peek().kind != "end":
            raise self._unexpected()

    def _unexpected(self, token: Token | None = None) -> CosmosError:
        token = token or self._peek()
        if _unsupported(token):
            what = "GROUP BY" if token.is_word("GROUP") else token.text.upper()
            return _refused(what)
        return bad_request(
            f"Syntax error in the query at {token.text!r} (character {token.at + 1}): "
            f"{self._text!r}."
        )


def _unsupported(token: Token) -> bool:
    return token.kind == "name" and token.text.upper() in _UNSUPPORTED_WORDS


def _is_plain_name(token: Token) -> bool:
    is_name = token.kind == "name" and token.text.upper() not in _KEYWORDS
    return is_name and not _unsupported(token)


def _between(value: Expression, low: Expression, high: Expression) -> Expression:
    above = Binary(operator=">=", left=value, right=low)
    return Binary(
        operator="AND", left=above, right=Binary(operator="<=", left=value, right=high)
    )


def _name_of(expression: Expression) -> str | None:
    """Return the last property name of a path, under which its column is known."""
    if isinstance(expression, Property) and expression.steps:
        last = expression.steps[-1]
        return last if isinstance(last, str) else None
    if isinstance(expression, Property):
        return "c"
    return None


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)
