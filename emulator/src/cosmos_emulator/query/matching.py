"""LIKE and regular expressions, in bounded time.

The parts of a LIKE between its ``%`` have a fixed length each, so the leftmost place of each
is as good as any other: nothing is tried twice. Regular expressions can take for ever; here the
time that is left to the query ends them, and other threads run meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import regex

from cosmos_emulator.errors import bad_request
from cosmos_emulator.query.budget import Budget

_PIECE: Final = regex.compile(r"%|_|\[\^?[^\]]+\]|.", regex.DOTALL)
_FLAGS: Final = {
    "i": regex.IGNORECASE,
    "m": regex.MULTILINE,
    "s": regex.DOTALL,
    "x": regex.VERBOSE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What stands between two ``%``: a text, or what fits texts of one length."""

    length: int
    text: str | None
    pattern: Any = None

    def find(self, text: str, start: int, end: int, budget: Budget) -> int:
        """Return the leftmost place of it in text[start:end], or -1."""
        budget.step()
        if self.text is not None:
            return text.find(self.text, start, end)
        found = _tried(self.pattern.search, text, budget, start, end)
        return -1 if found is None else int(found.start())

    def is_at(self, text: str, start: int, budget: Budget) -> bool:
        return self.find(text, start, start + self.length, budget) == start


def is_like(text: str, pattern: str, escape: str | None, budget: Budget) -> bool:
    """Return what LIKE says: % any text, _ any character, [a-c] and [^a-c] one of some."""
    first, *others = _parts(pattern, escape)
    if not others:
        return len(text) == first.length and first.is_at(text, 0, budget)
    *middle, last = others
    at, end = first.length, len(text) - last.length
    if at > end or not first.is_at(text, 0, budget) or not last.is_at(text, end, budget):
        return False
    for part in middle:
        found = part.find(text, at, end, budget)
        if found < 0:
            return False
        at = found + part.length
    return True


def is_match(budget: Budget, text: str, pattern: str, flags: str = "") -> bool:
    """Return whether a regular expression fits somewhere in a text."""
    try:
        compiled = regex.compile(pattern, sum(_FLAGS[x] for x in set(flags)))
    except (regex.error, KeyError) as error:
        raise bad_request(
            f"REGEXMATCH cannot use {pattern!r} with {flags!r}: {error}."
        ) from error
    return _tried(compiled.search, text, budget) is not None


def _tried(match: Any, text: str, budget: Budget, *where: int) -> Any:
    try:
        return match(text, *where, timeout=budget.seconds_left(), concurrent=True)
    except TimeoutError:
        raise budget.spent() from None


@lru_cache(maxsize=256)
def _parts(wanted: str, escape: str | None) -> tuple[_Part, ...]:
    parts: list[list[tuple[str, bool]]] = [[]]
    for piece, is_text in _pieces(wanted, escape):
        if piece == "%" and not is_text:
            parts.append([])
        else:
            parts[-1].append((piece, is_text))
    try:
        return tuple(_part(x) for x in parts)
    except regex.error as error:
        raise bad_request(f"LIKE cannot use {wanted!r}: {error}.") from error


def _pieces(wanted: str, escape: str | None) -> Iterator[tuple[str, bool]]:
    """Give what a pattern is made of, each with whether it stands for itself."""
    at = 0
    while at < len(wanted):
        if wanted[at] == escape and at + 1 < len(wanted):
            yield wanted[at + 1], True
            at += 2
            continue
        found = _PIECE.match(wanted, at)
        assert found is not None, "a piece is any character at least"
        yield found[0], len(found[0]) == 1 and found[0] not in "%_"
        at = found.end()


def _part(pieces: Sequence[tuple[str, bool]]) -> _Part:
    if all(is_text for _, is_text in pieces):
        return _Part(length=len(pieces), text="".join(x for x, _ in pieces))
    pattern = "".join(regex.escape(x) if is_text else _one_of(x) for x, is_text in pieces)
    return _Part(length=len(pieces), text=None, pattern=regex.compile(pattern, regex.DOTALL))


def _one_of(piece: str) -> str:
    if piece == "_":
        return "."
    negated = piece[1] == "^"
    inner = piece[2 if negated else 1 : -1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[{'^' if negated else ''}{inner}]"
