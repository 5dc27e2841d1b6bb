"""Cuts the text of a query into words, names, numbers, strings and signs."""

import re
from dataclasses import dataclass
from typing import Final, Literal, cast

import msgspec

from cosmos_emulator.errors import bad_request
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.limits import check_count

Kind = Literal["name", "number", "string", "parameter", "sign", "end"]

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<parameter>@\w+)
    |(?P<name>[^\W\d]\w*)
    |(?P<sign><=|>=|!=|<>|\|\||\?\?|[-+*/%=<>()\[\]{},.:?&|^~!])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """``text`` is as written, but for strings, where it is what they say."""

    kind: Kind
    text: str
    at: int
    end: int

    def is_word(self, word: str) -> bool:
        return self.kind == "name" and self.text.upper() == word


def tokens_of(text: str, budget: Budget) -> list[Token]:
    """Return the tokens of a query, an ``end`` last; 400 at what is no token."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise bad_request(f"Syntax error in the query, at {text[at : at + 20]!r}.")
        if match.lastgroup != "space":
            found.append(_token(match))
            check_count("word or sign", len(found))
            budget.step()
        at = match.end()
    return [*found, Token(kind="end", text="the end", at=at, end=at)]


def _token(match: re.Match[str]) -> Token:
    text, kind = match.group(0), match.lastgroup
    assert kind in {"name", "number", "string", "parameter", "sign"}
    return Token(
        kind=cast("Kind", kind),
        text=_said(text) if kind == "string" else text,
        at=match.start(),
        end=match.end(),
    )


def _said(quoted: str) -> str:
    """Return what a string literal says: JSON, but for single quotes."""
    inner = quoted[1:-1]
    if quoted[0] == "'":
        inner = re.sub(r'(\\.)|(")', _for_json, inner)
    try:
        return msgspec.json.decode(f'"{inner}"', type=str)
    except msgspec.DecodeError as error:
        raise bad_request(f"Syntax error in the string {quoted}: {error}.") from error


def _for_json(match: re.Match[str]) -> str:
    if match.group(2):
        return '\\"'
    return "'" if match.group(1) == "\\'" else match.group(1)
