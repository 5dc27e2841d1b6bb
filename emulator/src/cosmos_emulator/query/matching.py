"""LIKE and regular expressions, in bounded time.

The parts of a LIKE between its ``%`` have a fixed length each, so the leftmost place of each
is as good as any other: nothing is tried twice. Regular expressions are those of RE2,
whose time grows by the length of the text times that of the pattern. Meanwhile other threads
run.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2

from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.query.budget import Budget

_PIECE: Final = re.compile(r"%|_|\[\^?[^\]]+\]|.", re.DOTALL)
_FLAGS: Final = frozenset("ims")
_MAX_BYTES: Final = 8 << 20  # of a pattern that was read
_STEPS_A_SECOND: Final = 100_000_000  # of RE2 at its slowest: characters times instructions


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
        budget.seconds_left()  # as each search reads the whole text
        found = self.pattern.search(text, start, end)
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
        compiled = _compiled(pattern, "".join(sorted(set(flags))))
    except re2.error as error:
        raise _refused("REGEXMATCH", f"{pattern[:200]!r} with {flags!r}", error) from error
    if len(text) * compiled.programsize > budget.seconds_left() * _STEPS_A_SECOND:
        raise budget.spent()
    return compiled.search(text) is not None


def _refused(what: str, pattern: str, error: re2.error) -> CosmosError:
    (reason,) = error.args
    text = reason.decode() if isinstance(reason, bytes) else reason
    return bad_request(
        f"{what} cannot use {pattern}: {text}. Regular expressions are those of RE2: without "
        f"lookaround, without references back to a group, with the modifiers i, m and s."
    )


@lru_cache(maxsize=64)
def _compiled(pattern: str, flags: str) -> Any:
    if not _FLAGS.issuperset(flags):
        raise re2.error("no such modifier")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_BYTES
    return re2.compile(f"(?{flags}){pattern}" if flags else pattern, options)


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
    except re2.error as error:
        raise _refused("LIKE", repr(wanted[:200]), error) from error


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
    pattern = "".join(re2.escape(x) if is_text else _one_of(x) for x, is_text in pieces)
    return _Part(length=len(pieces), text=None, pattern=_compiled(pattern, "s"))


def _one_of(piece: str) -> str:
    if piece == "_":
        return "."
    negated = piece[1] == "^"
    inner = piece[2 if negated else 1 : -1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[{'^' if negated else ''}{inner}]"
