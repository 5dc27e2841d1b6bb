"""A place in the tokens of a query, and the refusals that name it."""

from collections import Counter
from typing import Final

from cosmos_emulator.errors import CosmosError, bad_request, not_supported
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.functions import FUNCTIONS
from cosmos_emulator.query.limits import check_count, check_length
from cosmos_emulator.query.tokens import Token, tokens_of

_FUNCTIONS: Final = ", ".join(sorted(x for x in FUNCTIONS if x[0] != "_"))
UNDERSTOOD: Final = " ".join(
    (
        "It understands: SELECT [DISTINCT] [TOP n] and *, VALUE x, or x [AS name], …;",
        "FROM c or (SELECT …) AS c [JOIN x IN c.xs]; WHERE; GROUP BY; ORDER BY x [DESC], …",
        "or RANK RRF(…); OFFSET n LIMIT m;",
        "COUNT, COUNTIF, SUM, AVG, MIN, MAX; subqueries, EXISTS, ARRAY; comparisons, AND, OR,",
        "NOT, IN, BETWEEN, LIKE, x ? y : z, ??, arithmetic, ||, and the functions",
        f"{_FUNCTIONS}.",
    )
)
_UNSUPPORTED_WORDS: Final = frozenset({"HAVING", "UNION"})
_KEYWORDS: Final = frozenset(
    {"SELECT", "TOP", "VALUE", "AS", "FROM", "WHERE", "ORDER", "BY", "ASC", "DESC", "OFFSET"}
    | {"LIMIT", "AND", "OR", "NOT", "IN", "BETWEEN", "TRUE", "FALSE", "NULL", "UNDEFINED"}
    | {"JOIN", "GROUP", "DISTINCT", "EXISTS", "LIKE", "ESCAPE", "RANK"}
)


def refused(what: str) -> CosmosError:
    return not_supported(f"{what} in a query", UNDERSTOOD)


class Cursor:
    """Goes through the tokens of a text."""

    def __init__(self, text: str, budget: Budget) -> None:
        check_length(len(text))
        self._text = text
        self._budget = budget
        self._tokens = tokens_of(text, budget)
        self._next = 0
        self._counts: Counter[str] = Counter()

    def count(self, word: str) -> None:
        """Count what a query can have so often only; 400 beyond."""
        self._counts[word] += 1
        check_count(word, self._counts[word])

    def peek(self) -> Token:
        return self._tokens[self._next]

    def advance(self) -> Token:
        token = self._tokens[self._next]
        if token.kind == "end":
            raise self.unexpected()
        self._next += 1
        self._budget.step()
        return token

    def took(self, word: str) -> bool:
        found = self.peek().is_word(word)
        self._next += found
        return found

    def took_sign(self, sign: str) -> bool:
        found = self.at_sign(sign)
        self._next += found
        return found

    def at_sign(self, *signs: str) -> bool:
        return self.peek().kind == "sign" and self.peek().text in signs

    def expect(self, word: str) -> None:
        if not self.took(word):
            raise self.unexpected()

    def expect_sign(self, sign: str) -> None:
        if not self.took_sign(sign):
            raise self.unexpected()

    def at_end(self) -> None:
        if self.peek().kind != "end":
            raise self.unexpected()

    def name(self) -> str:
        """Take a name that is no word of the language."""
        if not is_plain_name(self.peek()):
            raise self.unexpected()
        return self.advance().text

    def written_since(self, start: int) -> str:
        """Return the text from the token numbered ``start`` to the one before this."""
        if start >= self._next:
            return ""
        return self._text[self._tokens[start].at : self._tokens[self._next - 1].end]

    @property
    def place(self) -> int:
        return self._next

    def go_to(self, place: int) -> None:
        self._next = place

    def find_in_this_query(self, word: str) -> int | None:
        """Return the place of a word ahead, not inside brackets nor behind the query."""
        depth = 0
        for place in range(self._next, len(self._tokens)):
            token, before = self._tokens[place], self._tokens[place - 1]
            if token.kind == "sign" and token.text in "([{":
                depth += 1
            elif token.kind == "sign" and token.text in ")]}":
                depth -= 1
            if depth < 0:
                return None
            if depth == 0 and token.is_word(word) and before.text != ".":
                return place
        return None

    def unexpected(self, token: Token | None = None) -> CosmosError:
        token = token or self.peek()
        if token.kind == "name" and token.text.upper() in _UNSUPPORTED_WORDS:
            return refused(token.text.upper())
        return bad_request(
            f"Syntax error, incorrect syntax near {token.text!r} (character {token.at + 1}): "
            f"{self._text!r}."
        )


def is_plain_name(token: Token) -> bool:
    words = _KEYWORDS | _UNSUPPORTED_WORDS
    return token.kind == "name" and token.text.upper() not in words
